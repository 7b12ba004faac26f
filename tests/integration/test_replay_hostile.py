"""Messages that no client of ours sends: their sender is shown the door, and the replay goes on."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from replay_servers import Serving, client, context, serving, until

from callsheet.runtime.link.connector import Refused
from callsheet.runtime.link.link import Link
from callsheet.runtime.link.protocol import Header
from callsheet.runtime.replay import ReplayServer, Table, protocol
from callsheet.runtime.replay.config import PRIORITY, insert_schema
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream.sender import ITEMS

ITEM = Schema.of({"x": np.zeros(4, np.float32)})
SENT = insert_schema(ITEM)
KEYS = np.zeros(1, np.uint64)


def link(context: Any, purpose: str, schema: Schema | None = None, body: bytes | None = None) -> Link:
    want = protocol.encode(protocol.TableRequest(purpose, "replay")) if body is None else body
    return Link(context, "replay", protocol.SERVICE, schema=schema, hello_body=lambda: want)


def lives(shard: Serving, kind: str, expelled: int) -> None:
    """The intruder was shown the door, and others are served."""
    until(lambda: shard.server.listener.counts.protocol_errors >= expelled)
    with client(kind, shard.address, role="other", batch=2) as replay:
        replay.insert({"x": np.ones(4, np.float32)}, 1.0, timeout=10)
        replay.flush(10)
        assert replay.sample(10).size >= 1
        assert np.isfinite(shard.server.table().total_weight)


@pytest.mark.parametrize("kind", ["memory", "network"])
@pytest.mark.parametrize(
    "header",
    [
        Header(99),
        Header(protocol.SAMPLE, 0, 0, 1),
        Header(protocol.SAMPLE, 0, -5, 1),
        Header(protocol.SAMPLE, 0, 1 << 40, 1),
        Header(protocol.UPDATE, 0, 1, body=b""),
        Header(protocol.UPDATE, 0, -1, body=b""),
        Header(protocol.UPDATE, 0, 1 << 40, body=b"x" * 12),
        Header(protocol.UPDATE, 0, 1, body=protocol.encode_update(KEYS, np.array([-1], np.float32))),
        Header(protocol.UPDATE, 0, 1, body=protocol.encode_update(KEYS, np.array([np.nan], np.float32))),
        Header(protocol.UPDATE, 0, 1, body=protocol.encode_update(KEYS, np.array([np.inf], np.float32))),
        Header(ITEMS, SENT.hash, 1, 1),
    ],
    ids=lambda header: f"{header.verb}-{header.count}-{len(header.body)}",
)
def test_a_message_out_of_bounds_ends_its_link(kind: str, header: Header) -> None:
    with (
        serving(kind, Table(kind="prioritized", items=100, schema=ITEM)) as shard,
        context(kind, shard.address, role="intruder") as ctx,
    ):
        intruder = link(ctx, protocol.TO_SAMPLE)
        intruder.connect(10)
        assert intruder.send(header)
        lives(shard, kind, 1)
        intruder.close()


def test_a_wish_of_one_who_is_gone_holds_up_nobody() -> None:
    with (
        context("memory") as there,
        ReplayServer(there, "replay", Table(kind="fifo", items=100, schema=ITEM)) as server,
        context("memory", server.address, role="learner") as here,
    ):
        learner = link(here, protocol.TO_SAMPLE)
        while not learner.try_connect():
            server.step(0.01)
        learner.send(Header(protocol.SAMPLE, 0, 50, 1))
        learner.close()  # the server finds its wish and its end at the same time
        while server.listener.peers:
            server.step(0.01)
        assert server.counts()["held_samples"] == 0


@pytest.mark.parametrize("kind", ["memory", "network"])
@pytest.mark.parametrize(
    ("header", "priority"),
    [
        (Header(ITEMS, SENT.hash, 1, 1), -1.0),
        (Header(ITEMS, SENT.hash, 1, 1), np.inf),
        (Header(ITEMS, SENT.hash, 1, 0), 1.0),
        (Header(ITEMS, SENT.hash, 1, 1 << 62), 1.0),
        (Header(ITEMS, SENT.hash, 40, 1), 1.0),
        (Header(ITEMS, SENT.hash, 0, 1), 1.0),
        (Header(ITEMS, 7, 1, 1), 1.0),
    ],
)
def test_items_that_are_not_as_agreed_end_their_link(kind: str, header: Header, priority: float) -> None:
    with (
        serving(kind, Table(kind="prioritized", items=100, schema=ITEM)) as shard,
        context(kind, shard.address, role="intruder") as ctx,
    ):
        intruder = link(ctx, protocol.WRITE, SENT)
        intruder.connect(10)
        layout = SENT.layout(1)
        block = intruder.reserve(layout.nbytes, 10)
        layout.views(block.view)[PRIORITY][:] = priority
        intruder.post(header, block, layout.nbytes)
        lives(shard, kind, 1)
        assert shard.server.table().counts.inserted == 1
        intruder.close()


def test_more_wishes_than_anybody_needs_end_a_link() -> None:
    with (
        serving("memory", Table(min_size=10, schema=ITEM, items=100)) as shard,
        context("memory", shard.address, role="intruder") as ctx,
    ):
        intruder = link(ctx, protocol.TO_SAMPLE)
        intruder.connect(10)
        for number in range(protocol.MAX_REQUESTS + 1):
            intruder.send(Header(protocol.SAMPLE, 0, 1, number))
        until(lambda: shard.server.listener.counts.protocol_errors == 1)
        until(lambda: shard.server.counts()["held_samples"] == 0)
        intruder.close()


@pytest.mark.parametrize(
    ("body", "schema", "why"),
    [
        (b"", None, "a body that cannot be read"),
        (msgspec.msgpack.encode(["write"]), SENT, "a body that cannot be read"),
        (
            protocol.encode(protocol.TableRequest(protocol.WRITE, "replay")),
            None,
            "must say what its items look like",
        ),
        (
            protocol.encode(protocol.TableRequest(protocol.WRITE, "replay")),
            ITEM,
            "items of table 'replay' are",
        ),
        (protocol.encode(protocol.TableRequest("dance", "replay")), SENT, "it wants to 'dance'"),
    ],
)
def test_a_hello_that_makes_no_sense_is_refused_with_a_reason(
    body: bytes, schema: Schema | None, why: str
) -> None:
    with (
        serving("memory", Table(schema=ITEM, items=100)) as shard,
        context("memory", shard.address, role="intruder") as ctx,
    ):
        intruder = link(ctx, "", schema, body)
        with pytest.raises(Refused, match=why):
            intruder.connect(10)
        intruder.close()


def test_random_headers_do_no_harm() -> None:
    chance = np.random.default_rng(11)
    with (
        serving("memory", Table(kind="prioritized", items=100, schema=ITEM)) as shard,
        context("memory", shard.address, role="intruder") as ctx,
    ):
        intruder = link(ctx, protocol.TO_SAMPLE)
        for _ in range(2000):
            if intruder.shared_memory is None:
                intruder.connect(10)
            verb = int(chance.choice([1, 2, 11, 12, 13, 14, 15]))
            count = int(chance.integers(-3, 50))
            body = chance.bytes(int(chance.integers(0, 64)))
            intruder.send(
                Header(verb, int(chance.integers(0, 9)), count, int(chance.integers(0, 99)), body=body)
            )
            intruder.check_connection()
        intruder.close()
        lives(shard, "memory", 0)
        assert shard.is_alive()
