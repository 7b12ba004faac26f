"""The blocking calls of replay and policies."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
from blocking_process import GONE, LARGE, ROWS, SCHEMA, SMALL, Call, Side, Wait

from callsheet.errors import CallsheetError
from callsheet.runtime.policy import PolicyClient, PolicyServer
from callsheet.runtime.replay import ReplayClient, ReplayServer, Table


def serves_replay(*, durable: bool = False, **table: Any) -> Callable[[Side], None]:
    """A server that serves until it is told that this is enough."""

    def serve(side: Side) -> None:
        folder = tempfile.mkdtemp()
        options = {"snapshot_every": 3600, "storage": f"file://{folder}"} if durable else {}
        server = ReplayServer(side.context, "e", Table(**{"items": 100, **table}), **options)
        shutil.rmtree(folder)  # nothing is stored: this process is killed before
        side.say(server.address)
        while not side.heard():
            server.step(0.01)
        server.listener.flush_releases()
        side.say("served")

    return serve


def samples(side: Side) -> None:
    """A client with an open request."""
    client = ReplayClient(side.context, "e", batch=4)
    side.say("asked")
    client.sample()


def insert(many: int = 0, **options: Any) -> Callable[[Side], Call]:
    """Insert until nothing is taken any more."""

    def begin(side: Side) -> Call:
        client = ReplayClient(side.context, "e", window=2, **options)
        client.insert(LARGE)
        if options:
            client.flush()
            side.enough()
        rows = {"x": np.zeros((max(1, many), 1 << 18), "f4")}

        def call(timeout: float | None) -> object:
            while True:
                if many:
                    client.insert_many(rows, timeout=timeout)
                else:
                    client.insert(LARGE, timeout=timeout)

        return call

    return begin


def inserted(method: str, *, client: dict[str, Any] | None = None, **more: Any) -> Callable[[Side], Call]:
    """Call a method of a client when the shard has not taken all that was inserted."""

    def begin(side: Side) -> Call:
        made = ReplayClient(side.context, "e", **(client or {}))
        made.insert(SMALL)
        made.flush()
        side.enough()
        made.insert(SMALL)
        return lambda timeout: getattr(made, method)(timeout, **more)

    return begin


def sample(**options: Any) -> Callable[[Side], Call]:
    """Sample, after a request was opened."""

    def begin(side: Side) -> Call:
        client = ReplayClient(side.context, "e", batch=4, **options)
        with contextlib.suppress(CallsheetError):
            client.sample(timeout=0.3)
        return client.sample

    return begin


def update(side: Side) -> Call:
    """Send priorities that nobody takes."""
    client = ReplayClient(side.context, "e", batch=4)
    client.insert_many({"x": np.zeros((100, 4), "f4")})
    keys = np.resize(client.sample().keys, 10_000)
    side.enough()

    def call(timeout: float | None) -> object:
        for _ in range(100):
            client.update(keys, np.ones(10_000), timeout=timeout)
        return "dropped" if client.counts()["dropped_updates"] else "sent"

    return call


def update_unknown(side: Side) -> Call:
    """Send priorities to a shard that does not answer yet."""
    client = ReplayClient(side.context, "e", batch=4)
    return lambda timeout: client.update(np.zeros(1, "u8"), [1.0], timeout=timeout)


def serve_replay(method: str) -> Callable[[Side], Call]:
    def begin(side: Side) -> Call:
        server = ReplayServer(side.context, "e", Table())
        side.say(server.address)
        while not server.counts()["held_samples"]:
            server.step(0.01)

        def call(timeout: float | None) -> object:
            while method == "step" and timeout is None:
                server.step(None)
            return getattr(server, method)(timeout)

        return call

    return begin


# Policy


def answers(side: Side) -> None:
    """A server that answers once."""
    server = PolicyServer(
        side.context, "e", lambda seen: seen, max_batch=4, schema_in=SCHEMA, schema_out=SCHEMA
    )
    side.say(server.address)
    server.step()


def asks(side: Side) -> None:
    """A client with an open request, and another that never asks, so that the batch is not complete."""
    PolicyClient(side.context, "e").submit(ROWS)
    side.say("asked")


def ask(method: str) -> Callable[[Side], Call]:
    def begin(side: Side) -> Call:
        client = PolicyClient(side.context, "e")
        client.act(ROWS)
        ticket = client.submit(ROWS, lane=1)

        def call(timeout: float | None) -> object:
            if method == "result":
                return client.result(ticket, timeout)
            if method == "act":
                return client.act(ROWS, timeout=timeout)
            for lane in itertools.cycle(range(2, 8)):
                one = client.submit(ROWS, lane=lane, timeout=timeout)
                try:
                    client.result(one, 0.0)
                except CallsheetError:
                    continue
            return None

        return call

    return begin


def first_act(side: Side) -> Call:
    client = PolicyClient(side.context, "e", schema=SCHEMA)
    return lambda timeout: client.act(ROWS, timeout=timeout)


def serve_policy(side: Side) -> Call:
    server = PolicyServer(
        side.context, "e", lambda seen: seen, max_batch=4, schema_in=SCHEMA, schema_out=SCHEMA
    )
    side.say(server.address)
    while not side.heard():
        server.step(0.01)

    def call(timeout: float | None) -> object:
        if timeout is None:
            server.serve()
        while server.step(timeout):
            pass
        return "served"

    return call


_CLOSE = {"timed_out": GONE, "stopped": GONE}
_FULL = serves_replay(kind="fifo", items=1)
REPLAY: dict[str, Wait] = {
    "ReplayClient.insert": Wait(_FULL, insert()),
    "ReplayClient.insert, durable": Wait(serves_replay(durable=True), insert(durable=True, keep=8 << 20)),
    "ReplayClient.insert, two shards": Wait(_FULL, insert(), peers=2),
    "ReplayClient.insert_many": Wait(_FULL, insert(many=3)),
    "ReplayClient.flush": Wait(serves_replay(), inserted("flush")),
    "ReplayClient.flush, durable": Wait(
        serves_replay(durable=True), inserted("flush", client={"durable": True}, durable=True)
    ),
    "ReplayClient.close": Wait(serves_replay(), inserted("close"), longer=1.0, **_CLOSE),
    "ReplayClient.close, durable": Wait(
        serves_replay(durable=True), inserted("close", client={"durable": True}), longer=5.0, **_CLOSE
    ),
    "ReplayClient.sample": Wait(serves_replay(), sample()),
    "ReplayClient.sample, two shards": Wait(serves_replay(), sample(), peers=2),
    "ReplayClient.update": Wait(
        serves_replay(),
        update,
        *["returned 'dropped'"] * 2,
        at_once=True,
    ),
    "ReplayClient.update, never connected": Wait(
        lambda side: side.say(ReplayServer(side.context, "e", Table()).address), update_unknown
    ),
    "ReplayServer.serve": Wait(samples, serve_replay("serve"), timed_out=GONE, binds=True, longer=1.0),
    "ReplayServer.step": Wait(samples, serve_replay("step"), timed_out=GONE, binds=True, at_once=True),
    "PolicyClient.act": Wait(answers, ask("act")),
    "PolicyClient.act, the first": Wait(
        lambda side: side.say(
            PolicyServer(
                side.context, "e", lambda seen: seen, max_batch=4, schema_in=SCHEMA, schema_out=SCHEMA
            ).address
        ),
        first_act,
    ),
    "PolicyClient.submit": Wait(answers, ask("submit")),
    "PolicyClient.result": Wait(answers, ask("result")),
    "PolicyServer.step": Wait(asks, serve_policy, timed_out="returned 'served'", binds=True),
}
