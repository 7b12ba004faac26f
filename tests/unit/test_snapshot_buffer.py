"""The published snapshots: what somebody reads is never written, and their number stays small."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.runtime.parameters import snapshot_buffer as module
from callsheet.runtime.parameters.protocol import Version
from callsheet.runtime.parameters.snapshot_buffer import (
    MAX_LENT,
    BufferedSnapshot,
    SnapshotBuffer,
    arrays_offset,
)
from callsheet.runtime.schema import Schema

SCHEMA = Schema.of({"w": np.zeros(100, "f4"), "b": np.float64(0)})
SIZE = arrays_offset(SCHEMA) + SCHEMA.layout(1).nbytes


def publish(shelf: SnapshotBuffer, number: int) -> None:
    stored = shelf.acquire(SIZE)
    stored.write(
        Version(1, number), SCHEMA, {"w": np.full(100, number, "f4"), "b": np.asarray(float(number))}
    )
    shelf.publish(stored)


def content(stored: BufferedSnapshot) -> set[float]:
    return {float(value) for view in stored.views.values() for value in np.atleast_1d(view)}


@given(st.lists(st.sampled_from(["publish", "lend", "return first", "return last"]), max_size=60))
def test_what_is_lent_stays_as_it_was(steps: list[str]) -> None:
    shelf = SnapshotBuffer()
    lent: list[tuple[BufferedSnapshot, int]] = []
    number = 0
    for step in steps:
        if step == "publish":
            publish(shelf, number)
            number += 1
        elif step == "lend":
            stored = shelf.lend(Version())
            if stored is not None:
                lent.append((stored, stored.version.number))
        elif lent:
            shelf.give_back(lent.pop(0 if step == "return first" else -1)[0])
        assert all(content(stored) == {float(version)} for stored, version in lent)
        assert shelf.memory <= (MAX_LENT + 2) * 64 * 1024
    shelf.close()


def test_the_latest_is_lent_and_only_when_it_is_newer() -> None:
    shelf = SnapshotBuffer()
    assert shelf.lend(Version()) is None
    publish(shelf, 3)
    assert shelf.lend(Version(1, 3)) is None
    stored = shelf.lend(Version(1, 2))
    assert stored is not None
    assert stored.version == Version(1, 3)
    other = shelf.lend(Version(7, 900))  # of another publisher
    assert other is stored
    shelf.close()


def test_while_many_are_lent_readers_share_the_newest_of_them() -> None:
    shelf = SnapshotBuffer()
    for number in range(MAX_LENT):
        publish(shelf, number)
        assert shelf.lend(Version()) is not None
    publish(shelf, 100)
    shared = shelf.lend(Version())
    assert shared is not None
    assert shared.version.number == MAX_LENT - 1
    assert shelf.lend(shared.version) is None
    shelf.close()


def test_who_keeps_a_snapshot_keeps_it_for_good_and_others_get_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SHARE_SECONDS", 0.0)
    shelf = SnapshotBuffer()
    kept = []
    for number in range(5 * MAX_LENT):
        publish(shelf, number)
        stored = shelf.lend(Version(1, number - 1))
        assert stored is not None
        assert stored.version.number == number
        kept.append(stored)
    assert shelf.retired == 4 * MAX_LENT
    assert shelf.memory <= (MAX_LENT + 2) * 64 * 1024
    for stored in kept:
        shelf.give_back(stored)
    assert shelf.lent == 0
    shelf.close()
