"""Snapshots of a replay: what they bring back, what they cost, and what happens to a damaged one."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from replay_servers import KINDS, Serving, client, serving, until
from s3_server import BUCKET

from callsheet.errors import UserError
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.replay import ReplayServer, Table
from callsheet.runtime.replay.server import server
from callsheet.runtime.schema import Schema
from callsheet.store import BadSet, Fenced

OFTEN = 1e9
"""Seconds between snapshots: those of these tests are asked for."""


def many(first: int, count: int, size: int = 100) -> dict[str, np.ndarray]:
    numbers = np.arange(first, first + count)
    return {"number": numbers, "row": np.repeat(numbers[:, None], size, 1).astype(np.float32)}


def stored(folder: Path, kind: str = "uniform", **options: object) -> list[int]:
    """The numbers of all items that a server finds there."""
    table = Table(kind=kind, items=int(options.pop("items", 1000)), **options)  # type: ignore[arg-type, call-overload]
    with serving("memory", table, storage=str(folder), snapshot_every=OFTEN) as shard:
        return numbers_in(shard)


def numbers_in(shard: Serving) -> list[int]:
    table = shard.server.table()
    if table.schema is None:
        return []
    slots = np.arange(table.first, table.ring.next) % table.ring.slots
    numbers = table.ring.arrays["number"][slots]
    assert (table.ring.arrays["row"][slots] == numbers[:, None]).all()
    return numbers.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_writers_need_not_wait_for_the_last_snapshot(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = threading.Event()

    def slow(self: ReplayServer, timeout: float | None = None) -> bool:
        return taken.wait(60)

    monkeypatch.setattr(ReplayServer, "snapshot", slow)
    monkeypatch.setattr(server, "_DRAIN_QUIET", 2.0)  # so that the last items come in time on any machine
    options = {"storage": str(tmp_path), "snapshot_every": OFTEN}
    with (
        serving(kind, Table(items=100), **options) as shard,
        client(kind, shard.address, role="actor") as replay,
    ):
        replay.insert_many(many(0, 1))
        replay.flush(10)
        shard.context.stop.set()
        replay.insert_many(many(1, 1))
        replay.flush(20)
        taken.set()
        shard.stop()
        assert numbers_in(shard) == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_goes_on_where_a_snapshot_was_taken(kind: str, tmp_path: Path) -> None:
    table = Table(kind="prioritized", items=300, alpha=0.5, samples_per_insert=100.0, tolerance=1e9)
    options = {"storage": str(tmp_path), "snapshot_every": OFTEN}
    with serving(kind, table, **options) as shard:
        with client(kind, shard.address, batch=50, ahead=0) as replay:
            replay.insert_many(many(0, 1000), np.arange(1000))
            replay.flush(10)
            sample = replay.sample(10)
            replay.update(sample.keys, np.full(50, 2000.0))
            until(lambda: shard.server.counts()["updates"] == 50)
        before = shard.server.table()
        shard.stop()
    with serving(kind, table, **options) as again:
        after = again.server.table()
        assert numbers_in(again) == list(range(700, 1000))
        assert after.total_weight == pytest.approx(before.total_weight)
        assert (after.limiter.inserted, after.limiter.sampled) == (1000, 50)
        assert after.counts.restored == 300
        with client(kind, again.address, batch=50, ahead=0) as replay:
            replay.update(sample.keys, np.full(50, 1.0))  # keys from before
            until(lambda: again.server.counts()["updates"] == 50)
            assert again.server.counts()["stale_updates"] == 0
            replay.insert_many(many(5000, 1))
            replay.flush(10)
            assert numbers_in(again)[-1] == 5000


@pytest.mark.usefixtures("s3")
def test_snapshots_live_in_s3_as_in_a_folder() -> None:
    options = {"storage": f"s3://{BUCKET}/{secrets.token_hex(4)}", "snapshot_every": OFTEN}
    with serving("memory", Table(items=2000), **options) as shard:
        with client("memory", shard.address, durable=True) as actor:
            for first in (0, 300):
                actor.insert_many(many(first, 300))
                actor.flush(40, durable=True)
            actor.insert_many(many(600, 5))
            actor.flush(10)
        shard.stop()
    with serving("memory", Table(items=2000), **options) as again:
        assert numbers_in(again) == list(range(605))


def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    with (
        serving("memory", Table(items=2000), storage=str(tmp_path), snapshot_every=OFTEN) as shard,
        client("memory", shard.address, durable=True) as actor,
    ):
        actor.insert_many(many(0, 1000))
        actor.flush(20, durable=True)
        first = shard.server.counts()["snapshot_bytes"]
        actor.insert_many(many(1000, 10))
        actor.flush(20, durable=True)
        second = shard.server.counts()["snapshot_bytes"] - first
        assert first >= 1000 * 408
        assert second <= 0.2 * first
    assert stored(tmp_path, items=2000) == list(range(1010))


def test_segments_that_no_snapshot_names_are_removed(tmp_path: Path) -> None:
    with (
        serving("memory", Table(items=100), storage=str(tmp_path), snapshot_every=OFTEN, keep=2) as shard,
        client("memory", shard.address, durable=True) as actor,
    ):
        for number in range(20):
            actor.insert_many(many(100 * number, 100))
            actor.flush(20, durable=True)
    held = sum(file.stat().st_size for file in tmp_path.rglob("segments/*"))
    assert held <= 3 * 120 * 408
    assert stored(tmp_path, items=100) == list(range(1900, 2000))


def test_it_is_durable_when_a_snapshot_has_it_and_not_before(tmp_path: Path) -> None:
    with (
        serving("memory", Table(), storage=str(tmp_path), snapshot_every=OFTEN) as shard,
        client("memory", shard.address, durable=True) as actor,
    ):
        actor.insert_many(many(0, 10))
        actor.flush(10)
        assert actor.durable == {shard.address: 0}
        actor.flush(20, durable=True)
        assert actor.durable == {shard.address: 10}
        actor.insert_many(many(10, 5))
        actor.flush(10)
        shard.stop(killed=True)
    assert stored(tmp_path) == list(range(10)), "what was not durable died with the server"


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_not_durable_is_sent_again_to_the_next_server(kind: str, tmp_path: Path) -> None:
    options = {"storage": str(tmp_path), "snapshot_every": OFTEN}
    with serving(kind, Table(), **options) as shard, client(kind, shard.address, durable=True) as actor:
        actor.insert_many(many(0, 200))
        actor.flush(20, durable=True)
        actor.insert_many(many(200, 300))
        actor.flush(10)
        shard.stop(killed=True)
        with serving(kind, Table(), address=shard.address, **options) as again:
            actor.insert_many(many(500, 10))
            actor.flush(20, durable=True)
            assert numbers_in(again) == list(range(510)), "each once, in order"
            assert again.server.counts()["missed"] == 0
            assert actor.durable == {shard.address: 510}


def test_a_writer_whose_memory_runs_full_gets_a_snapshot_early(tmp_path: Path) -> None:
    with (
        serving("memory", Table(), storage=str(tmp_path), snapshot_every=OFTEN) as shard,
        client("memory", shard.address, durable=True, keep=200_000) as actor,
    ):
        for number in range(0, 3000, 10):
            actor.insert_many(many(number, 10), timeout=20)
        actor.flush(20, durable=True)
        assert shard.server.counts()["snapshots"] > 3
        assert numbers_in(shard) == list(range(3000))


def test_without_snapshots_a_full_writer_waits_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReplayServer, "_start_snapshot", lambda self, snapshots: None)
    with (
        serving("memory", Table(), storage=str(tmp_path), snapshot_every=OFTEN) as shard,
        client("memory", shard.address, durable=True, keep=200_000) as actor,
    ):
        with pytest.raises(TimedOut, match="bytes wait for the reader"):
            actor.insert_many(many(0, 3000), timeout=3)
        actor.close(0.0)


def test_a_smaller_table_takes_the_newest_and_a_larger_one_all(tmp_path: Path) -> None:
    with (
        serving("memory", Table(items=500), storage=str(tmp_path), snapshot_every=OFTEN) as shard,
        client("memory", shard.address, durable=True) as actor,
    ):
        actor.insert_many(many(0, 800))
        actor.flush(20, durable=True)
    assert stored(tmp_path, items=70) == list(range(730, 800))
    assert stored(tmp_path, items=9000) == list(range(300, 800))
    assert stored(tmp_path, kind="prioritized", items=500) == list(range(300, 800))


def test_a_queue_comes_back_without_what_was_taken(tmp_path: Path) -> None:
    with (
        serving(
            "memory", Table(kind="fifo", items=100), storage=str(tmp_path), snapshot_every=OFTEN
        ) as shard,
        client("memory", shard.address, batch=10, ahead=0) as replay,
    ):
        replay.insert_many(many(0, 60))
        replay.flush(10)
        for _ in range(3):
            replay.sample(10)
        shard.stop()
    assert stored(tmp_path, kind="fifo", items=100) == list(range(30, 60))


def _newest(folder: Path, pattern: str) -> Path:
    return max(folder.rglob(pattern), key=lambda file: (file.stat().st_mtime_ns, file.name))


def _two_snapshots(folder: Path) -> None:
    with (
        serving("memory", Table(items=1000), storage=str(folder), snapshot_every=OFTEN) as shard,
        client("memory", shard.address, durable=True) as actor,
    ):
        actor.insert_many(many(0, 100))
        actor.flush(20, durable=True)
        actor.insert_many(many(100, 100))
        actor.flush(20, durable=True)


@pytest.mark.parametrize("what", ["segments/*", "*/state", "manifests/*"])
def test_a_damaged_snapshot_is_said_and_the_one_before_is_taken(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _two_snapshots(tmp_path)
    broken = _newest(tmp_path, what)
    data = bytearray(broken.read_bytes())
    data[len(data) // 2] ^= 1
    broken.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert stored(tmp_path) == list(range(100))
    assert caplog.records


def test_when_every_snapshot_is_damaged_nothing_begins_in_silence(tmp_path: Path) -> None:
    _two_snapshots(tmp_path)
    for segment in tmp_path.rglob("segments/*"):
        segment.unlink()
    with pytest.raises(BadSet, match="is not there"):
        stored(tmp_path)


def test_other_items_than_in_the_snapshot_are_refused(tmp_path: Path) -> None:
    _two_snapshots(tmp_path)
    with pytest.raises(UserError, match=r"has other items: .*number: int32\[\]"):
        stored(tmp_path, schema=Schema.of({"number": np.int32(0), "row": np.zeros(100, np.float32)}))


def test_a_server_that_was_replaced_stops(tmp_path: Path) -> None:
    options = {"storage": str(tmp_path), "snapshot_every": 0.05}
    with serving("memory", Table(), **options) as old, serving("memory", Table(), **options) as new:
        with client("memory", old.address, role="actor") as actor:
            actor.insert_many(many(0, 10))
        until(lambda: not old.is_alive())
        with pytest.raises(Fenced, match="another writer has taken over"):
            old.stop()
        with client("memory", new.address, role="actor", durable=True) as actor:
            actor.insert_many(many(50, 10))
            actor.flush(20, durable=True)
    assert stored(tmp_path) == list(range(50, 60))


def test_snapshots_need_a_place() -> None:
    with (
        pytest.raises(UserError, match="has no storage for its snapshots"),
        serving("memory", Table(), snapshot_every=1.0),
    ):
        pass


def test_a_store_that_fails_does_not_stop_service(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        serving("memory", Table(), storage=str(tmp_path), snapshot_every=0.05) as shard,
        client("memory", shard.address, batch=4, durable=True) as replay,
    ):
        replay.insert_many(many(0, 10))
        replay.flush(20, durable=True)
        place = next(tmp_path.rglob("segments"))
        place.rename(place.with_name("hidden"))
        place.write_text("in the way")
        replay.insert_many(many(10, 10))
        until(lambda: shard.server.counts()["snapshot_failures"] > 0)
        assert replay.sample(10).size == 20
        place.unlink()
        place.mkdir(exist_ok=True)  # the next snapshot may have been quicker
        for file in place.with_name("hidden").iterdir():
            file.rename(place / file.name)
        replay.flush(20, durable=True)
    assert "a snapshot of the replay failed" in caplog.text
    assert stored(tmp_path) == list(range(20))


@pytest.mark.exclusive
def test_service_hardly_pauses_while_a_million_items_are_stored(tmp_path: Path) -> None:
    """Priorities of a million items are copied at the moment of the snapshot; the items themselves are not."""
    table = Table(kind="prioritized", items=1_000_000)
    with (
        serving("memory", table, storage=str(tmp_path), snapshot_every=0.5) as shard,
        client("memory", shard.address, batch=256) as replay,
    ):
        replay.insert_many({"x": np.zeros((1_000_000, 16), np.float32)})
        replay.flush(60)
        stored_before = shard.server.counts()["snapshots"]
        waits = []

        def stored_again() -> bool:
            begun = time.monotonic()
            sample = replay.sample(10)
            waits.append(time.monotonic() - begun)
            replay.update(sample.keys, np.ones(256))
            return shard.server.counts()["snapshots"] >= stored_before + 2

        until(stored_again, 60)
        counts = shard.server.counts()
    pause = counts["snapshot_longest_pause"]
    print(
        f"\nsnapshot of a million items: {counts['snapshot_seconds']:.2f} s in the background, pause {pause * 1e3:.2f} ms, "
        f"longest wait for a sample meanwhile {max(waits) * 1e3:.1f} ms"
    )
    assert pause < 0.25
