"""The blocking calls of the runtime library."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from blocking_calls_replay import REPLAY
from blocking_process import GONE, KILLED, LARGE, SCHEMA, SMALL, Call, Side, Wait, measure

from callsheet.errors import CallsheetError
from callsheet.runtime.parameters import ParameterReader, ParameterServer
from callsheet.runtime.schema import Schema
from callsheet.runtime.trajectories import TrajectoryReader, TrajectoryWriter


def reads(side: Side) -> None:
    """A reader that takes one rollout and no more."""
    reader = TrajectoryReader(side.context, "e")
    side.say(reader.address)
    reader.read(1)
    reader.cursor()


def binds_alone(side: Side) -> None:
    """A reader that is there and answers nobody."""
    side.say(TrajectoryReader(side.context, "e").address)


def writes(side: Side) -> None:
    """A writer of one rollout."""
    writer = TrajectoryWriter(side.context, "e")
    writer.write(SMALL)
    writer.flush()
    side.say("written")


def write(**options: Any) -> Callable[[Side], Call]:
    """Write until nothing is taken any more."""

    def begin(side: Side) -> Call:
        writer = TrajectoryWriter(side.context, "e", **options)
        writer.write(LARGE)

        def call(timeout: float | None) -> object:
            while True:
                writer.write(LARGE, timeout=timeout)

        return call

    return begin


def fill(**options: Any) -> Callable[[Side], Call]:
    """The same in place."""

    def begin(side: Side) -> Call:
        writer = TrajectoryWriter(side.context, "e", Schema.of(LARGE), **options)
        writer.write(LARGE)

        def call(timeout: float | None) -> object:
            while True:
                with writer.rollout(timeout=timeout):
                    pass

        return call

    return begin


def after_two(
    method: str, *arguments: Any, write: dict[str, Any] | None = None, **more: Any
) -> Callable[[Side], Call]:
    """Call a method of a writer when the reader has not taken all that was written."""

    def begin(side: Side) -> Call:
        writer = TrajectoryWriter(side.context, "e", **(write or {}))
        writer.write(SMALL)
        writer.flush()
        writer.write(SMALL)
        return lambda timeout: getattr(writer, method)(timeout, *arguments, **more)

    return begin


def connect(**options: Any) -> Callable[[Side], Call]:
    """Only connect."""
    return lambda side: TrajectoryWriter(side.context, "e", SCHEMA, **options).connect


def read(side: Side) -> Call:
    """Read two rollouts where there is one."""
    reader = TrajectoryReader(side.context, "e")
    side.say(reader.address)
    while not side.heard():
        try:
            reader.read(2, timeout=0.01)
        except CallsheetError:
            continue
    return lambda timeout: reader.read(2, timeout=timeout)


# Parameters


def publishes(side: Side) -> None:
    """A server with one version."""
    server = ParameterServer(side.context, "e")
    server.publish(0, SMALL)
    side.say(server.address)


def looks_at(side: Side) -> None:
    """A reader that keeps a snapshot in its hands, and waits for the next."""
    reader = ParameterReader(side.context, "e", views=True)
    reader.wait()
    side.say("seen")
    reader.wait()


def wait_for_version(side: Side) -> Call:
    reader = ParameterReader(side.context, "e")
    reader.wait()
    return lambda timeout: reader.wait(timeout=timeout)


def poll(side: Side) -> Call:
    """Poll as an actor does, in a loop of its own."""
    reader = ParameterReader(side.context, "e")
    reader.wait()

    def call(timeout: float | None) -> object:
        end = time.monotonic() + (timeout or 60)
        while time.monotonic() < end:
            assert reader.poll() is None
            side.context.sleep(0.05)
        return "nothing"

    return call


def publishing(call: Callable[[Side, ParameterServer], Call]) -> Callable[[Side], Call]:
    """A server whose reader keeps what it has."""

    def begin(side: Side) -> Call:
        server = ParameterServer(side.context, "e")
        server.publish(0, SMALL)
        side.say(server.address)
        while not side.heard():
            time.sleep(0.001)
        return call(side, server)

    return begin


def publish(side: Side, server: ParameterServer) -> Call:
    def call(timeout: float | None) -> object:
        end = time.monotonic() + 2 * KILLED
        for version in itertools.count(1):
            server.publish(version, SMALL)
            time.sleep(0.01)
            if time.monotonic() > end:
                return "published"
        return None

    return call


# The process itself


def rest(side: Side) -> Call:
    return lambda timeout: side.context.sleep(60 if timeout is None else timeout)


def close_all(side: Side, server: ParameterServer) -> Call:
    return lambda timeout: side.context.close()


_READS, _CLOSE = Wait(reads, write()), {"timed_out": GONE, "stopped": GONE}
WAITS: dict[str, Wait] = {
    "TrajectoryWriter.connect": Wait(binds_alone, connect()),
    "TrajectoryWriter.write": _READS,
    "TrajectoryWriter.write, durable": replace(_READS, begin=write(durable=True, keep=8 << 20)),
    "TrajectoryWriter.write, spread": replace(_READS, begin=write(spread=True), peers=2),
    "TrajectoryWriter.rollout": replace(_READS, begin=fill()),
    "TrajectoryWriter.rollout, durable": replace(_READS, begin=fill(durable=True, keep=8 << 20)),
    "TrajectoryWriter.rollout, spread": replace(_READS, begin=fill(spread=True)),
    "TrajectoryWriter.flush": replace(_READS, begin=after_two("flush")),
    "TrajectoryWriter.flush, durable": replace(
        _READS, begin=after_two("flush", durable=True, write={"durable": True})
    ),
    "TrajectoryWriter.flush, spread": replace(_READS, begin=after_two("flush", write={"spread": True})),
    "TrajectoryWriter.close": replace(_READS, begin=after_two("close"), longer=1.0, **_CLOSE),
    "TrajectoryWriter.close, durable": replace(
        _READS, begin=after_two("close", write={"durable": True}), longer=5.0, **_CLOSE
    ),
    "TrajectoryWriter.close, spread": replace(
        _READS, begin=after_two("close", write={"spread": True}), longer=1.0, **_CLOSE
    ),
    "TrajectoryReader.read": Wait(writes, read, binds=True),
    "ParameterReader.wait": Wait(publishes, wait_for_version),
    "ParameterReader.poll": Wait(publishes, poll, timed_out="returned 'nothing'", longer=1.0),
    "ParameterServer.publish": Wait(
        looks_at, publishing(publish), *["returned 'published'"] * 2, binds=True, at_once=True
    ),
    "Context.sleep": Wait(publishes, rest, timed_out=GONE),
    "Context.close": Wait(looks_at, publishing(close_all), GONE, GONE, binds=True, at_once=True),
    **REPLAY,
}


def run(name: str, kind: str, how: str, tell: Any) -> None:
    """Measure one of them: for a new process."""
    measure(WAITS[name], kind, how, tell)
