"""Rollouts on their way from writers to a reader: what arrives, how it is put together, who waits for whom."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import numpy as np
import pytest
from trajectory_peers import KINDS, context, finish, item, numbers, reading, write, writing

from callsheet.errors import UserError
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.connector import Refused
from callsheet.runtime.link.link import Link, TimedOut
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline, Stopping
from callsheet.runtime.trajectories import TrajectoryReader, TrajectoryWriter


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["memory", "network"])
def carrier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_rollouts_arrive_in_order_with_all_that_is_known_of_them(kind: str) -> None:
    with reading(kind) as reader, writing(kind, reader.address, write(100, version=7), index=3) as writer:
        seen = []
        for _ in range(10):
            batch = reader.read(10, timeout=10)
            assert batch["obs"].shape == (10, 4, 2, 3)
            assert batch["obs"].dtype == np.float32
            assert [reader.writers[n] for n in batch.writers] == ["actor/3/actor"] * 10
            assert set(batch.versions) == {7}
            assert set(batch.incarnations) == {writer.context.incarnation}
            assert [n - 1 for n in batch.sequences] == numbers(batch)
            seen += numbers(batch)
        assert seen == list(range(100))
        assert reader.counts()["items"] == 100


def test_large_rollouts_of_several_writers(kind: str) -> None:
    def work(writer: TrajectoryWriter) -> None:
        for number in range(20):
            writer.write({"x": np.full((64, 1024), number, "i4"), "n": np.array(number)})

    with (
        reading(kind) as reader,
        writing(kind, reader.address, work, index=0),
        writing(kind, reader.address, work, index=1),
    ):
        seen: dict[str, list[int]] = {}
        for _ in range(8):
            batch = reader.read(5, timeout=20)
            for number, writer in enumerate(batch.writers):
                assert (batch["x"][number] == batch["n"][number]).all()
                seen.setdefault(reader.writers[writer], []).append(int(batch["n"][number]))
    assert seen == {"actor/0/actor": list(range(20)), "actor/1/actor": list(range(20))}


def test_a_flood_by_memory_keeps_nobody_out_who_comes_by_the_network() -> None:
    def flood(writer: TrajectoryWriter) -> None:
        with contextlib.suppress(Stopping):
            while True:
                writer.write(item(0, (64, 256)))

    with reading("memory") as reader, writing("memory", reader.address, flood, patience=0.1):
        reader.read(64, timeout=10)
        few = [item(number, (64, 256)) for number in range(1, 21)]
        with writing("encrypted", reader.address, lambda writer: [writer.write(one) for one in few], index=1):
            found: list[int] = []
            while len(found) < 20:
                found += [number for number in numbers(reader.read(16, timeout=10)) if number]
        assert found == list(range(1, 21))


def test_rollouts_are_joined_along_the_batch_axis(carrier: str) -> None:
    with reading(carrier, axis=1) as reader, writing(carrier, reader.address, write(6)):
        batch = reader.read(3, timeout=10)
        assert batch["obs"].shape == (4, 6, 3)
        assert batch["action"].shape == (4, 6)
        np.testing.assert_array_equal(batch["action"], np.tile(np.repeat([0, 1, 2], 2), (4, 1)))
        np.testing.assert_array_equal(reader.read(3, timeout=10)["action"][0], [3, 3, 4, 4, 5, 5])


def test_each_array_may_have_its_own_axis() -> None:
    with (
        reading("memory", axis={"obs": 1, "action": 0}) as reader,
        writing("memory", reader.address, write(2)),
    ):
        batch = reader.read(2, timeout=10)
        assert batch["obs"].shape == (4, 4, 3)
        assert batch["action"].shape == (8, 2)


def test_an_axis_that_an_array_does_not_have_is_refused() -> None:
    schema = Schema.of({"obs": np.zeros((4, 2)), "reward": np.zeros(4)})
    with pytest.raises(UserError, match=r"reward: float64\[4\] has no axis 1"):
        TrajectoryReader(context("memory"), "t", schema, axis=1)
    with pytest.raises(UserError, match="'rewards', which is not in the schema"):
        TrajectoryReader(context("memory"), "t", schema, axis={"rewards": 0})


def test_a_batch_stays_as_it_is_until_the_read_after_the_next() -> None:
    with reading("memory", buffers=3) as reader, writing("memory", reader.address, write(16)):
        first, second, third = (reader.read(4, timeout=10) for _ in range(3))
        assert [numbers(one)[0] for one in (first, second, third)] == [0, 4, 8]
        fourth = reader.read(4, timeout=10)
        assert fourth is first
        assert numbers(fourth)[0] == 12


def test_the_callers_own_arrays_are_filled(carrier: str) -> None:
    out = {"obs": np.zeros((2, 4, 2, 3), "f4"), "action": np.zeros((2, 4, 2), "i4")}
    with reading(carrier) as reader, writing(carrier, reader.address, write(4)):
        for expected in ([0, 1], [2, 3]):
            batch = reader.read(2, timeout=10, out=out)
            assert batch["obs"] is out["obs"]
            assert list(out["action"][:, 0, 0]) == expected
        with pytest.raises(UserError, match=r"must be contiguous and obs: float32\[3, 4, 2, 3\]"):
            reader.read(3, timeout=10, out=out)
        with pytest.raises(UserError, match="'action' is missing in out"):
            reader.read(2, timeout=10, out={"obs": out["obs"]})


@pytest.mark.parametrize("newer", [0, 1], ids=["items share frames", "each has a frame"])
def test_what_came_before_a_timeout_is_part_of_the_next_read(carrier: str, newer: int) -> None:
    more = threading.Event()

    def work(writer: TrajectoryWriter) -> None:
        for number in range(5):
            writer.write(item(number), version=newer * number)
        more.wait(10)
        for number in range(5, 20):
            writer.write(item(number), version=newer * number)

    with reading(carrier) as reader, writing(carrier, reader.address, work):
        while reader.pending < 5:
            with pytest.raises(TimedOut, match="of 8 items arrived in time"):
                reader.read(8, timeout=0.05)
        assert reader.cursor() == {}, "what was not returned was not read"
        small = reader.read(2, timeout=5)  # another size: the items are the same
        assert numbers(small) == [0, 1]
        assert list(small.versions) == [0, newer]
        with pytest.raises(TimedOut):
            reader.read(4, timeout=0.05)
        assert reader.pending == 3
        more.set()
        assert numbers(reader.read(4, timeout=10)) == [2, 3, 4, 5]
        assert numbers(reader.read(14, timeout=10)) == list(range(6, 20))


def test_rollouts_of_an_old_policy_are_masked_and_counted(carrier: str) -> None:
    def work(writer: TrajectoryWriter) -> None:
        for version in (9, 10, 3, 7):
            writer.write(item(version), version=version)

    with reading(carrier, max_policy_lag=3) as reader, writing(carrier, reader.address, work):
        reader.version = 10
        batch = reader.read(4, timeout=10)
        assert list(batch.lag) == [1, 0, 7, 3]
        assert list(batch.fresh) == [True, True, False, True]
        assert batch.stale == 1
        assert reader.counts()["stale"] == 1
        assert reader.lags() == {0: 1, 1: 1, 3: 1, 7: 1}


def test_nothing_is_masked_any_more_when_the_limit_is_lifted() -> None:
    def work(writer: TrajectoryWriter) -> None:
        for _ in range(6):
            writer.write(item(0), version=0)

    with reading("memory", max_policy_lag=3) as reader, writing("memory", reader.address, work):
        reader.version = 10
        for _ in range(2):  # each of the two buffers
            assert reader.read(2, timeout=10).stale == 2
        reader.max_policy_lag = None
        batch = reader.read(2, timeout=10)
        assert batch.fresh.all()
        assert batch.stale == 0


def test_small_rollouts_share_frames_and_the_last_one_does_not_wait(carrier: str) -> None:
    held = threading.Event()

    def work(writer: TrajectoryWriter) -> None:
        for number in range(10_000):
            writer.write({"x": np.full(4, number, "i4")})
        held.wait(20)  # writes no more, and does not close either

    with reading(carrier) as reader, writing(carrier, reader.address, work):
        for begin in range(0, 10_000, 1000):
            batch = reader.read(1000, timeout=10)
            assert (batch["x"] == np.arange(begin, begin + 1000)[:, None]).all()
        assert reader.counts()["frames"] < 1000
        held.set()


def test_a_lone_rollout_is_sent_at_once(carrier: str) -> None:
    turn = threading.Semaphore(0)

    def work(writer: TrajectoryWriter) -> None:
        for number in range(20):
            turn.acquire(timeout=10)
            writer.write(item(number))

    with reading(carrier) as reader, writing(carrier, reader.address, work) as writer:
        for number in range(20):
            turn.release()
            assert numbers(reader.read(1, timeout=10)) == [number]
        finish(reader, writer)
        assert reader.counts()["frames"] == 20


def test_a_rollout_can_be_filled_in_place(carrier: str) -> None:
    def work(writer: TrajectoryWriter) -> None:
        writer.write(item(0))
        with pytest.raises(KeyError), writer.rollout() as arrays:
            arrays["none"][0] = 1
        with writer.rollout(version=5) as arrays:
            for step in range(4):
                arrays["obs"][step] = arrays["action"][step, 0] = arrays["action"][step, 1] = 1
        writer.write(item(2))

    for durable in (False, True):
        with reading(carrier) as reader, writing(carrier, reader.address, work, durable=durable):
            batch = reader.read(3, timeout=10)
            assert numbers(batch) == [0, 1, 2]
            assert list(batch.versions) == [0, 5, 0]
            assert list(batch.sequences) == [1, 2, 3]


@pytest.mark.parametrize("window", [1, 8])
def test_a_refused_rollout_takes_neither_the_place_nor_the_number_of_the_next(
    carrier: str, window: int
) -> None:
    def work(writer: TrajectoryWriter) -> None:
        writer.write(item(0))
        with pytest.raises(UserError, match="'action' is missing"):
            writer.write({"obs": item(1)["obs"]})
        with writer.rollout(timeout=10) as arrays:
            arrays["obs"][:] = arrays["action"][:] = 1
        writer.write(item(2), timeout=10)

    for durable in (False, True):
        with (
            reading(carrier) as reader,
            writing(carrier, reader.address, work, durable=durable, window=window),
        ):
            assert numbers(reader.read(3, timeout=10)) == [0, 1, 2]
            assert reader.counts()["duplicates"] == 0


def test_arrays_other_than_agreed_are_refused_by_the_writer() -> None:
    def work(writer: TrajectoryWriter) -> None:
        writer.write(item(0))
        with pytest.raises(UserError, match=r"obs: float64\[4, 2, 3\] does not match the schema"):
            writer.write({**item(1), "obs": item(1)["obs"].astype("f8")})
        with pytest.raises(UserError, match="'action' is missing"):
            writer.write({"obs": item(1)["obs"]})
        with pytest.raises(UserError, match="'extra' is not in the schema"):
            writer.write({**item(1), "extra": np.zeros(1)})
        with pytest.raises(UserError, match="version is -1"):
            writer.write(item(1), version=-1)
        writer.write(item(1))

    with reading("memory") as reader, writing("memory", reader.address, work):
        assert numbers(reader.read(2, timeout=10)) == [0, 1]


def test_arrays_of_any_length_are_refused() -> None:
    free = Schema.of(item(0), free={"obs": (0,)})
    with pytest.raises(UserError, match=r"obs: float32\[any, 2, 3\]"):
        TrajectoryWriter(context("memory"), "t", free)
    with pytest.raises(UserError, match="some lengths are free"):
        TrajectoryReader(context("memory"), "t", free)


def test_another_schema_is_refused_and_both_sides_say_how_it_differs(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = threading.Event()

    def refused(writer: TrajectoryWriter) -> None:
        with pytest.raises(Refused, match=r"obs: float32\[4, 2, 3\] against obs: uint8\[4, 2, 3\]"):
            writer.write(item(0), timeout=10)
        said.set()

    wanted = Schema.of({"obs": np.zeros((4, 2, 3), "u1"), "action": np.zeros((4, 2), "i4")})
    with reading(kind, schema=wanted) as reader, caplog.at_level(logging.WARNING):
        with writing(kind, reader.address, refused):
            limit = time.monotonic() + 30
            while not said.is_set():
                assert time.monotonic() < limit
                with pytest.raises(TimedOut):
                    reader.read(1, timeout=0.2)
        assert reader.counts()["refused"] >= 1
    ours = [one.getMessage() for one in caplog.records if "refused a link" in one.getMessage()]
    assert ours == [
        "endpoint t refused a link: actor/0/actor: its arrays are not those of the reader: "
        "obs: float32[4, 2, 3] against obs: uint8[4, 2, 3]"
    ]


def test_a_reader_without_a_schema_takes_the_first_writers(carrier: str) -> None:
    with reading(carrier) as reader:
        assert reader.schema is None
        with writing(carrier, reader.address, write(1)):
            reader.read(1, timeout=10)
        assert reader.schema == Schema.of(item(0))


def test_a_slow_reader_makes_writers_wait(carrier: str) -> None:
    done = threading.Event()
    written = []

    def work(writer: TrajectoryWriter) -> None:
        try:
            for number in range(100):
                writer.write({"x": np.full((64, 1024), number, "i4")}, timeout=None if number == 0 else 0.2)
                written.append(number)
        except TimedOut:
            written.append(-1)
        done.wait(20)
        written.append(int(writer.counts()["waited"] > 0.1))

    with reading(carrier, window=3) as reader, writing(carrier, reader.address, work):
        reader.read(1, timeout=10)
        while -1 not in written:
            time.sleep(0.01)
        assert len(written) - 1 <= 1 + 3 + 1  # read, in flight, and one that was given back already
        done.set()
        for number in range(1, len(written) - 1):
            assert reader.read(1, timeout=10)["x"][0, 0, 0] == number


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("ahead", [1, 8, 30])
def test_no_more_rollouts_wait_than_wanted(carrier: str, ahead: int, durable: bool) -> None:
    done = threading.Event()
    written = []

    def work(writer: TrajectoryWriter) -> None:
        with contextlib.suppress(TimedOut):
            for number in range(1000):
                writer.write(item(number), timeout=10 if number == 0 else 0.1)
                written.append(number)
        done.set()

    with (
        reading(carrier) as reader,
        writing(carrier, reader.address, work, ahead=ahead, durable=durable) as writer,
    ):
        reader.read(1, timeout=10)
        assert done.wait(20)
        assert len(written) <= 1 + ahead
        assert len(written) >= 1 + ahead // 2
        for number in range(1, len(written)):
            assert numbers(reader.read(1, timeout=10)) == [number]
        finish(reader, writer)


def test_an_empty_endpoint_is_waited_for_no_longer_than_wanted() -> None:
    with context("memory", "127.0.0.1:9", role="actor") as ctx, TrajectoryWriter(ctx, "t") as writer:
        begun = time.monotonic()
        with pytest.raises(TimedOut, match=r"no connection to t at 127\.0\.0\.1:9"):
            writer.write(item(0), timeout=0.2)
        assert time.monotonic() - begun < 5


def test_a_writer_that_does_not_encrypt_is_told_why_it_is_not_heard() -> None:
    with (
        reading("encrypted") as reader,
        context("network", reader.address, role="actor") as ctx,
        TrajectoryWriter(ctx, "t") as writer,
        pytest.raises(Refused, match="does not accept this process's key"),
    ):
        writer.write(item(0), timeout=20)


def test_reading_ends_when_the_process_should_stop_though_items_flow(carrier: str) -> None:
    with reading(carrier) as reader, writing(carrier, reader.address, write(1_000_000), patience=0):
        reader.read(10, timeout=10)
        reader._context.stop.set()
        with pytest.raises(Stopping):
            reader.read(10, timeout=10)


def test_what_was_written_before_the_stop_is_handed_over(carrier: str) -> None:
    def work(writer: TrajectoryWriter) -> None:
        for number in range(50):
            writer.write(item(number))
        ctx.stop.set()
        with pytest.raises(Stopping):
            write(1000)(writer)
        counts.update(writer.counts())

    counts: dict[str, float] = {}
    with reading(carrier) as reader, writing(carrier, reader.address, work) as writer:
        ctx = writer.context
        seen = 0
        while writer.is_alive() or seen < counts["items"]:
            with contextlib.suppress(TimedOut):
                batch = reader.read(1, timeout=0.1)
                seen += 1
                assert batch.sequences[0] == seen
    assert writer.counts["dropped"] == 0
    assert seen == counts["items"] >= 50


def test_items_that_nobody_takes_are_counted_when_the_writer_closes(caplog: pytest.LogCaptureFixture) -> None:
    with reading("memory") as reader, writing("memory", reader.address, lambda w: None):
        gone = threading.Event()

        def work(writer: TrajectoryWriter) -> None:
            writer.write(item(0))
            gone.wait(10)
            for number in range(1, 4):
                writer.write(item(number))
            writer.close(timeout=0.2)
            assert writer.counts()["dropped"] == 3

        with caplog.at_level(logging.WARNING), writing("memory", reader.address, work, index=1) as writer:
            reader.read(1, timeout=10)
            gone.set()
            writer.join(10)
    assert "t: 3 items were dropped because the reader did not take them" in caplog.text


@pytest.mark.parametrize(
    "header",
    [
        m.Header(verb=9, sequence=1),
        m.Header(verb=1, sequence=0),
        m.Header(verb=1, sequence=1, version=-1),
        m.Header(verb=1, sequence=1, version=1 << 63),
        m.Header(verb=1, sequence=1, count=5000),
        m.Header(verb=1, sequence=1, count=2),
        m.Header(verb=1, sequence=1, schema=5),
    ],
    ids=str,
)
def test_a_frame_that_is_not_as_agreed_ends_the_link(carrier: str, header: m.Header) -> None:
    schema = Schema.of(item(0))
    header.schema = header.schema or schema.hash
    size = schema.layout(1).nbytes

    def misbehave() -> None:
        with context(carrier, reader.address, role="actor") as ctx:
            link = Link(ctx, "t", "trajectories", schema=schema)
            link.connect(5)
            link.post(header, link.reserve(size), size)
            while not ended.is_set():
                with contextlib.suppress(TimedOut):
                    link.wait(Deadline(0.05))
            link.close()

    ended = threading.Event()
    with reading(carrier, schema=schema) as reader:
        thread = threading.Thread(target=misbehave)
        thread.start()
        deadline = time.monotonic() + 10
        while reader.counts()["expelled"] < 1 and time.monotonic() < deadline:
            with pytest.raises(TimedOut):
                reader.read(1, timeout=0.05)
        ended.set()
        thread.join(10)
        assert reader.counts()["expelled"] >= 1
        with writing(carrier, reader.address, write(3), index=1):
            assert numbers(reader.read(3, timeout=10)) == [0, 1, 2], "others are not bothered"


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("kind", ["network", "encrypted"])
def test_rollouts_of_many_megabytes_travel_in_parts_and_arrive_whole(kind: str, axis: int | None) -> None:
    """No part of a message is larger than what a stranger's may cost; the arrays do not show it."""
    chance = np.random.default_rng(5)
    rollouts = [
        {
            "obs": chance.integers(0, 256, (37, 3, 84, 84), dtype=np.uint8),
            "reward": chance.random((37, 3), dtype=np.float32),
            "state": chance.random((37, 3, 1001)),
        }
        for _ in range(3)
    ]
    with (
        reading(kind, axis=axis) as reader,
        writing(kind, reader.address, lambda w: [w.write(r) for r in rollouts]),
    ):
        batch = reader.read(3, timeout=20)
    join = np.stack if axis is None else lambda arrays: np.concatenate(arrays, axis)
    for name, array in batch.arrays.items():
        assert np.array_equal(array, join([rollout[name] for rollout in rollouts]))
