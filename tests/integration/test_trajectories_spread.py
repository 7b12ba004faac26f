"""Rollouts for several readers: spread by the room that each has, also when readers come and go."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trajectory_peers import KEY, context, item

from callsheet import contract
from callsheet.errors import UserError
from callsheet.runtime.context import Context
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Stopping
from callsheet.runtime.trajectories import TrajectoryReader, TrajectoryWriter


class Reading(threading.Thread):
    """A reader in a thread; `slow` readers take their time."""

    def __init__(self, carrier: str, pause: float = 0.0) -> None:
        super().__init__(daemon=True)
        self.context = context(carrier, role="learner")
        self.reader = TrajectoryReader(self.context, "t")
        self.address = self.reader.address
        self.seen: list[int] = []
        self._pause = pause

    def run(self) -> None:
        with contextlib.suppress(Stopping):
            while True:
                with contextlib.suppress(TimedOut):
                    batch = self.reader.read(1, timeout=0.1)
                    self.seen.append(int(batch["action"][0, 0, 0]))
                if self._pause:
                    self.context.sleep(self._pause)
        self.reader.close()
        self.context.close()

    def end(self) -> None:
        self.context.stop.set()
        self.join(10)


@pytest.fixture(params=["memory", "network"])
def carrier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def read(carrier: str) -> Iterator[Callable[..., Reading]]:
    """Starts readers."""
    found: list[Reading] = []

    def begin(pause: float = 0.0) -> Reading:
        found.append(Reading(carrier, pause))
        found[-1].start()
        return found[-1]

    yield begin
    for one in found:
        one.end()


def wait(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_every_item_goes_to_one_reader_and_all_of_them_get_some(
    carrier: str, read: Callable[..., Reading]
) -> None:
    readers = [read(), read(), read()]
    addresses = ",".join(one.address for one in readers)
    with (
        context(carrier, addresses, role="actor") as ctx,
        TrajectoryWriter(ctx, "t", Schema.of(item(0, (64, 16))), spread=True) as writer,
    ):
        writer.connect(timeout=20)
        wait(lambda: writer.counts()["connects"] == 3)
        for number in range(600):
            writer.write(item(number, (64, 16)), timeout=20)
        writer.flush(timeout=20)
        assert writer.counts()["items"] == 600
        assert writer.counts()["receivers"] == 3
    wait(lambda: sum(len(one.seen) for one in readers) == 600)
    assert sorted(n for one in readers for n in one.seen) == list(range(600))
    for one in readers:
        assert one.seen == sorted(one.seen)
        assert len(one.seen) > 20


def test_a_slow_reader_gets_less(carrier: str, read: Callable[..., Reading]) -> None:
    quick, slow = read(), read(0.05)
    with (
        context(carrier, f"{quick.address},{slow.address}", role="actor") as ctx,
        TrajectoryWriter(ctx, "t", Schema.of(item(0, (128, 64))), spread=True, window=2) as writer,
    ):
        writer.connect(timeout=20)
        wait(lambda: writer.counts()["connects"] == 2)
        for number in range(100):
            with writer.rollout(timeout=20) as arrays:
                arrays["action"][:] = number
    wait(lambda: len(quick.seen) + len(slow.seen) == 100)
    assert len(slow.seen) < len(quick.seen)


def test_readers_that_come_and_go_are_followed(
    carrier: str, read: Callable[..., Reading], tmp_path: Path
) -> None:
    book = tmp_path / "addresses.json"

    def list_readers(*readers: Reading) -> None:
        new = tmp_path / "new.json"
        new.write_text(json.dumps({"endpoints": {"t": {"addresses": [one.address for one in readers]}}}))
        new.rename(book)

    first, second = read(), read()
    list_readers(first)
    env = {
        contract.EXPERIMENT: "e",
        contract.RUN: "by-hand",
        contract.ROLE: "actor",
        contract.INDEX: "0",
        contract.KEYS: str(tmp_path),
        contract.ADDRESSES: str(book),
    }
    (tmp_path / "run.key").write_bytes(KEY)
    if carrier == "network":
        env[contract.ENCRYPTION] = contract.ENCRYPTION_OFF
    with Context.from_env(env) as ctx, TrajectoryWriter(ctx, "t", spread=True) as writer:
        ctx.memory = carrier == "memory"
        number = 0

        def go_on(until: Callable[[], bool]) -> None:
            nonlocal number
            end = time.monotonic() + 20
            while not until():
                assert time.monotonic() < end
                writer.write(item(number), timeout=20)
                number += 1
                time.sleep(0.001)

        go_on(lambda: len(first.seen) > 10)
        list_readers(first, second)
        go_on(lambda: len(second.seen) > 10)
        list_readers(second)
        go_on(lambda: writer.counts()["receivers"] == 1)
        before = len(first.seen)
        go_on(lambda: len(second.seen) > 200)
        writer.flush(timeout=20)
        assert writer.counts()["dropped"] == 0
        wait(lambda: len(first.seen) + len(second.seen) == number)
        assert len(first.seen) <= before + 64, "only what was on its way"
    assert sorted(first.seen + second.seen) == list(range(number))


def test_nobody_there_is_waited_for_no_longer_than_wanted() -> None:
    with (
        context("memory", "127.0.0.1:9,127.0.0.1:10", role="actor") as ctx,
        TrajectoryWriter(ctx, "t", spread=True) as writer,
    ):
        with pytest.raises(TimedOut, match="none of the 2 receivers of t took an item"):
            writer.write(item(0), timeout=0.3)
        with pytest.raises(UserError, match="nothing becomes durable"):
            writer.flush(durable=True)
        with pytest.raises(UserError, match="nothing becomes durable"):
            assert writer.durable
