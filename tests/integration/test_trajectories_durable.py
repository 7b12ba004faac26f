"""What is promised to survive: acknowledged twice, kept until then, sent again to a new reader, never counted double."""

from __future__ import annotations

import json
import threading
import time
from contextlib import ExitStack

import numpy as np
import pytest
from free_ports import free_address
from trajectory_peers import KINDS, context, finish, item, numbers, reading, write, writing

from callsheet.errors import UserError
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.link.transport import Disconnected
from callsheet.runtime.trajectories import TrajectoryReader, TrajectoryWriter


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def drop_links(reader: TrajectoryReader) -> None:
    """As when a connection breaks."""
    for peer in reader._listener.peers:
        reader._listener.disconnect(peer)


def test_what_is_sent_again_after_a_break_is_read_once(kind: str) -> None:
    for durable in (False, True):
        with (
            reading(kind) as reader,
            writing(kind, reader.address, write(2000, (64, 16)), durable=durable) as writer,
        ):
            seen: list[int] = []
            while len(seen) < 2000:
                seen += numbers(reader.read(10, timeout=20))
                if len(seen) in (50, 500, 1000, 1500):
                    drop_links(reader)
            assert seen == list(range(2000))
            finish(reader, writer)
            assert reader.counts()["missing"] == 0
        assert writer.counts["connects"] == 1 + 4


@pytest.mark.parametrize("durable", [False, True])
def test_a_break_that_is_noticed_while_a_batch_is_filled_doubles_nothing(kind: str, durable: bool) -> None:
    """A frame is given back as soon as it is copied, and that is when the reader may learn that a writer is gone: what
    waits behind that frame comes again, on the writer's next connection."""
    broken = 0

    def fail(message: bytes) -> None:
        nonlocal broken
        broken += 1
        raise Disconnected

    with (
        reading(kind) as reader,
        writing(kind, reader.address, write(300, (64, 256)), index=0, durable=durable) as first,
        writing(kind, reader.address, write(300, (64, 256)), index=1, durable=durable) as second,
    ):
        seen: dict[int, list[int]] = {0: [], 1: []}
        while sum(map(len, seen.values())) < 600:
            batch = reader.read(6, timeout=20)
            reader.durable(reader.cursor())
            for writer, number in zip(batch.writers.tolist(), numbers(batch), strict=True):
                seen[writer].append(number)
            if reader.counts()["items"] % 60 == 0:
                for peer in reader._listener.peers[:1]:
                    peer.transport.send = fail  # type: ignore[method-assign]
        assert seen == {0: list(range(300)), 1: list(range(300))}
        assert broken
        finish(reader, first)
        finish(reader, second)


def test_a_new_reader_goes_on_where_the_last_one_had_stored_its_cursor(kind: str) -> None:
    stored: list[int] = []

    def work(writer: TrajectoryWriter) -> None:
        for number in range(300):
            writer.write(item(number))
        writer.flush(timeout=30, durable=True)
        assert writer.durable == 300
        assert writer.counts()["kept"] == 0

    address = free_address()
    with ExitStack() as first:
        reader = first.enter_context(reading(kind, address))
        with writing(kind, address, work, durable=True) as writer:
            cursor = ""
            for count in range(10):
                batch = reader.read(7, timeout=20)
                if count < 6:  # the rest was read, but not stored: it dies with this reader
                    stored += numbers(batch)
                    cursor = json.dumps(reader.cursor())
                    reader.durable(json.loads(cursor))
            first.close()
            with reading(kind, address, cursor=json.loads(cursor)) as second:
                while len(stored) < 300:
                    stored += numbers(second.read(6, timeout=20))
                    second.durable(second.cursor())
                assert second.counts()["missing"] == 0
                finish(second, writer)
    assert stored == list(range(300))


def test_a_writer_waits_when_it_may_not_keep_more(kind: str) -> None:
    waiting, done = threading.Event(), threading.Event()

    def work(writer: TrajectoryWriter) -> None:
        for number in range(16):
            writer.write({"x": np.full(1 << 14, number, "i4")}, timeout=10)
        with pytest.raises(TimedOut, match="wait for the reader to make them durable"):
            writer.write({"x": np.full(1 << 14, 16, "i4")}, timeout=0.3)
        assert 0 < writer.counts()["kept"] <= 1 << 20
        waiting.set()
        writer.write({"x": np.full(1 << 14, -1, "i4")}, timeout=20)  # as soon as something is durable
        done.set()

    with reading(kind) as reader, writing(kind, reader.address, work, durable=True, keep=1 << 20):
        count = 0
        while not done.is_set():
            try:
                reader.read(1, timeout=0.05)
                count += 1
            except TimedOut:
                if waiting.is_set():
                    reader.durable(reader.cursor())
        assert count >= 16


def test_a_restarted_writer_learns_what_became_of_its_last_life(kind: str) -> None:
    told: list[tuple[tuple[int, int], ...]] = []

    def work(writer: TrajectoryWriter) -> None:
        writer.write(item(0))
        told.append(writer.previous)
        while not writer.previous or writer.previous[-1][1] < 5:
            assert writer.durable >= 0
            time.sleep(0.01)
        told.append(writer.previous)

    with reading(kind) as reader:
        with writing(kind, reader.address, write(5), durable=True) as first:
            numbers(reader.read(3, timeout=10))
            early = reader.cursor()
            assert early == {"actor/0/actor": [[first.context.incarnation, 3]]}
            reader.durable(early)
            numbers(reader.read(2, timeout=10))  # read, and durable only later
            finish(reader, first)
        with writing(kind, reader.address, work, durable=True) as second:
            reader.read(1, timeout=10)
            while not told:
                time.sleep(0.01)
            reader.durable(reader.cursor())
            finish(reader, second)
    incarnation = first.context.incarnation
    assert told == [((incarnation, 3),), ((incarnation, 5),)]


def test_a_cursor_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="not a cursor"):
        TrajectoryReader(context("memory"), "t", cursor={"actor/0/actor": [1, 2]})  # type: ignore[dict-item,list-item]
    with reading("memory") as reader, writing("memory", reader.address, write(2)) as writer:
        reader.read(2, timeout=10)
        with pytest.raises(UserError, match="was read up to 9, but it was read up to 2"):
            reader.durable({"actor/0/actor": [[writer.context.incarnation, 9]]})


def test_an_item_that_is_larger_than_what_may_be_kept_is_refused() -> None:
    with (
        context("memory", role="actor") as ctx,
        TrajectoryWriter(ctx, "t", durable=True, keep=1000) as writer,
        pytest.raises(UserError, match="an item has 4,096 bytes, and 1,024 may be kept"),
    ):
        writer.write({"x": np.zeros(4096, "u1")})


def test_durable_and_spread_exclude_each_other() -> None:
    with pytest.raises(UserError, match="spread=True cannot be combined"):
        TrajectoryWriter(context("memory"), "t", spread=True, durable=True)
