"""Two incarnations at once: the old one is stopped before each of its calls to the store, its successor works, and the
old one goes on. Nothing that either called durable is lost, and the next one starts."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import replay_programs
from free_ports import free_address
from local_runs import eventually
from replay_programs import serve, serve_and_stop_itself, start
from replay_servers import client, context
from stalling_store import Stalls

from callsheet.rl.checkpoints import Checkpoints
from callsheet.runtime.replay import ReplayClient, ReplayServer, Table
from callsheet.runtime.replay.server import server
from callsheet.runtime.replay.server.snapshot_restore import restore
from callsheet.runtime.replay.server.snapshot_writer import SEGMENTS
from callsheet.runtime.schema import Schema
from callsheet.store import Fenced, SetWriter, Store, Unreachable, all_sets, claim, latest, open_store
from callsheet.store.manifest import record_numbers

NEVER = 1e9
PLACE = "checkpoints/replay-0/replay"
TABLE = Table(kind="prioritized", items=64)
"""Sixteen segments of four items: snapshots write several, and later ones drop some."""


class Shard:
    """A replay server whose snapshots are asked for."""

    def __init__(self, store: Store, keep: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self._context = context("memory", role="replay")
        with monkeypatch.context() as patch:
            patch.setattr(server, "open_store", lambda url: store)
            self._server = ReplayServer(
                self._context, "replay", TABLE, storage="given", snapshot_every=NEVER, keep=keep
            )

    def insert(self, first: int, count: int) -> None:
        table = self._server.table()
        if table.schema is None:
            table.allocate(Schema.of({"number": np.int64(0)}))
        table.insert({"number": np.arange(first, first + count)}, 0, np.full(count, np.nan, np.float32))

    def snapshot(self) -> bool:
        """Whether it is durable."""
        try:
            return self._server.snapshot(60)
        except Fenced:
            return False

    @property
    def items(self) -> list[int]:
        table = self._server.table()
        if table.schema is None:
            return []
        found: list[int] = table.ring.arrays["number"][
            np.arange(table.first, table.ring.next) % table.ring.slots
        ].tolist()
        return found

    def close(self) -> None:
        self._server.close()
        self._context.close()


@contextmanager
def shard(store: Store, keep: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shard]:
    one = Shard(store, keep, monkeypatch)
    try:
        yield one
    finally:
        one.close()


def stall_a_shard(folder: Path, call: int, rounds: int, keep: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The third snapshot of the old server stops before a call; whether it makes so many."""
    stalls, plain = Stalls(folder), open_store(folder)
    with shard(stalls.store, keep, monkeypatch) as old:
        for first in (0, 30):
            old.insert(first, 30)
            assert old.snapshot()
        acknowledged = old.items
        old.insert(60, 30)
        stalls.arm(call)
        late: list[bool] = []
        writing = threading.Thread(target=lambda: late.append(old.snapshot()))
        writing.start()
        eventually(lambda: stalls.stalled.is_set() or not writing.is_alive(), within=60)
        with shard(plain, keep, monkeypatch) as new:
            restored = new.items
            assert restored in (acknowledged, old.items)
            for n in range(rounds):
                new.insert(1000 + 10 * n, 10)
                assert new.snapshot(), "the successor is not disturbed"
            stalls.go_on.set()
            writing.join(60)
            assert late
            if late[0]:
                assert restored == old.items, "what the old one called durable was taken over"
            with shard(plain, keep, monkeypatch) as third:
                assert third.items == new.items, (call, rounds, keep)
                third.insert(5000, 1)
                assert third.snapshot()
                left = [entry.key for entry in plain.sub(PLACE).list("segments")]
                named = {key for one in all_sets(plain.sub(PLACE)) for key in one.info["segments"]}
                assert set(left) == named, "nothing is left behind"
    return stalls.stalled.is_set()


@pytest.mark.parametrize(("keep", "rounds"), [(1, 0), (1, 3), (2, 1), (2, 3)])
def test_a_replay_server_that_was_stopped_at_any_call_takes_nothing_from_its_successor(
    tmp_path: Path, keep: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # nobody cuts the power here
    call = 0
    while stall_a_shard(tmp_path / str(call), call, rounds, keep, monkeypatch):
        call += 1
    assert call > 20


def test_servers_that_never_finish_a_snapshot_leave_no_pile_of_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shard(open_store(tmp_path), 2, monkeypatch) as first:
        first.insert(0, 30)
        assert first.snapshot()
        good = len(open_store(tmp_path).sub(PLACE).list(SEGMENTS))

    def end_before_the_manifest(call: str) -> None:
        if call.startswith("create"):
            raise Unreachable("killed here")

    for _ in range(5):
        stalls = Stalls(tmp_path)
        with shard(stalls.store, 2, monkeypatch) as one:
            one.insert(30, 8)
            stalls.stop = end_before_the_manifest
            stalls.arm(0)
            assert not one.snapshot()
        left = [entry.key for entry in open_store(tmp_path).sub(PLACE).list(SEGMENTS)]
        assert good < len(left) <= good + 3
    with shard(open_store(tmp_path), 2, monkeypatch) as last:
        assert last.items == list(range(30))


def test_a_server_that_is_stopped_by_a_signal_takes_nothing_from_its_successor(
    tmp_path: Path, members: list[Any]
) -> None:
    """The same with processes, sockets and SIGSTOP, and writers that hear what is durable."""
    addresses = [free_address() for _ in range(2)]
    members.append(start(serve_and_stop_itself, addresses[0], str(tmp_path), f"list {PLACE}/{SEGMENTS}"))
    old = members[0]
    with client("memory", addresses[0], role="actor", durable=True) as first:
        insert(first, 0, 60)
        first.flush(60, durable=True)
        (tmp_path / "stop").touch()
        insert(first, 60, 60)
        eventually((tmp_path / "stopped").exists, within=60)
        members.append(start(serve, addresses[1], 0, str(tmp_path), 0.1))
        with client("memory", addresses[1], role="actor", index=1, durable=True) as second:
            for n in range(2):
                insert(second, 1000 + 30 * n, 30)
                second.flush(60, durable=True)
            os.kill(old.pid, signal.SIGCONT)
            insert(first, 120, 1)  # so that the old one has a snapshot to write, and finds out
            eventually(lambda: not old.is_alive(), within=60)
        durable = sum(first.durable.values())
    members[1].kill()
    members[1].join(10)
    assert {*range(max(60, durable)), *range(1000, 1060)} <= stored_numbers(tmp_path)


@pytest.fixture
def members() -> Iterator[list[Any]]:
    """Processes of the test; none is left after it."""
    found: list[Any] = []
    yield found
    for process in found:
        process.kill()
        process.join(10)


def insert(replay: ReplayClient, first: int, count: int) -> None:
    record_numbers = np.arange(first, first + count)
    zero = np.zeros_like(record_numbers)
    replay.insert_many(
        {"id": np.stack([zero, zero, record_numbers], 1), "x": np.repeat(record_numbers[:, None], 250, 1)}
    )


def stored_numbers(folder: Path) -> set[int]:
    store = open_store(folder).sub(PLACE)
    table = restore(store, [replay_programs.TABLE])["replay"].service.table
    slots = np.arange(table.first, table.ring.next) % table.ring.slots
    return set(table.ring.arrays["id"][slots][:, 2].tolist())


def stall_a_learner(folder: Path, call: int, rounds: int, keep: int) -> bool:
    """The fourth checkpoint of the old learner stops before a call; whether it makes so many."""
    stalls, plain = Stalls(folder), open_store(folder)
    old = Checkpoints(stalls.store, keep=keep, order=0)
    for step, rating in ((0, 1.0), (1, 9.0), (2, 9.0)):
        save(old, step, rating)
    stalls.arm(call)
    late: list[bool] = []
    writing = threading.Thread(target=lambda: late.append(save(old, 3, 5.0)))
    writing.start()
    eventually(lambda: stalls.stalled.is_set() or not writing.is_alive(), within=60)
    new = Checkpoints(plain, keep=keep, order=1)
    restored = new.load({})
    assert restored
    last = step = int(restored.state["step"])
    assert step in (2, 3)
    best = new.best
    for last in range(step + 1, step + 1 + rounds):
        assert save(new, last, 10.0 if last == step + 1 else 2.0), "the successor is not disturbed"
        best = new.best
    stalls.go_on.set()
    writing.join(60)
    assert late
    if late[0]:
        assert step == 3, "what the old one called durable was taken over"
    third = Checkpoints(plain, keep=keep, order=2)
    found = third.load({})
    assert found
    assert int(found.state["step"]) == last, (call, rounds, keep)
    assert third.best == best, "the best is kept as well"
    assert save(third, 100, 0.0)
    folder_store = plain.sub("checkpoints")
    for one in all_sets(folder_store):
        one.verify()
    named = {one.record.folder for one in all_sets(folder_store)}
    left = {entry.key.partition("/")[0] for entry in folder_store.list()} - {"manifests"}
    assert left == named, "nothing is left behind"
    return stalls.stalled.is_set()


def save(writer: Checkpoints, step: int, rating: float) -> bool:
    """Whether it is durable."""
    arrays = {"step": np.array(step)}
    try:
        writer.save(f"step-{step}", arrays, arrays, {"evaluation": rating, "identity": {}})
    except Fenced:
        return False
    return True


@pytest.mark.parametrize(("keep", "rounds"), [(1, 0), (1, 3), (2, 1), (2, 3)])
def test_a_learner_that_was_stopped_at_any_call_takes_nothing_from_its_successor(
    tmp_path: Path, keep: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    call = 0
    while stall_a_learner(tmp_path / str(call), call, rounds, keep):
        call += 1
    assert call > 10


def test_a_set_written_where_a_claim_was_removed_does_not_count_though_nobody_takes_it_away(
    tmp_path: Path,
) -> None:
    """Three incarnations: the second one leaves nothing but a claim, which the third one removes."""
    stalls, plain = Stalls(tmp_path), open_store(tmp_path)
    old = claim(stalls.store)
    write(old, "one")
    stalls.arm(2)  # after the part and its manifest, before the old one looks whether it was replaced
    claim(plain)
    third = claim(plain)
    assert 3 not in record_numbers(plain), "the place is free"
    fenced = threading.Event()

    def write_late() -> None:
        try:
            write(old, "late")
        except Fenced:
            fenced.set()

    late = threading.Thread(target=write_late)
    late.start()
    eventually(stalls.stalled.is_set, within=60)
    assert 3 in record_numbers(plain)
    assert latest(plain).name == "one"  # type: ignore[union-attr]
    fourth = claim(plain)
    stalls.go_on.set()
    late.join(60)
    assert fenced.is_set()
    assert latest(plain).name == "one"  # type: ignore[union-attr]
    with pytest.raises(Fenced):
        write(third, "no")
    write(fourth, "two")
    assert [one.name for one in all_sets(plain)] == ["two", "one"]


def write(writer: SetWriter, name: str) -> None:
    with writer.write_set(name) as parts:
        parts.put("model", name.encode())
