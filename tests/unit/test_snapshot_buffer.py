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


def publish(buffer: SnapshotBuffer, number: int) -> None:
    stored = buffer.acquire(SIZE)
    stored.write(
        Version(1, number), SCHEMA, {"w": np.full(100, number, "f4"), "b": np.asarray(float(number))}
    )
    buffer.publish(stored)


def content(stored: BufferedSnapshot) -> set[float]:
    return {float(value) for view in stored.views.values() for value in np.atleast_1d(view)}


@given(st.lists(st.sampled_from(["publish", "lend", "return first", "return last"]), max_size=60))
def test_what_is_lent_stays_as_it_was(steps: list[str]) -> None:
    buffer = SnapshotBuffer()
    lent: list[tuple[BufferedSnapshot, int]] = []
    number = 0
    for step in steps:
        if step == "publish":
            publish(buffer, number)
            number += 1
        elif step == "lend":
            stored = buffer.lend(Version())
            if stored is not None:
                lent.append((stored, stored.version.number))
        elif lent:
            buffer.give_back(lent.pop(0 if step == "return first" else -1)[0])
        assert all(content(stored) == {float(version)} for stored, version in lent)
        assert buffer.memory <= (MAX_LENT + 2) * 64 * 1024
    buffer.close()


def test_the_latest_is_lent_and_only_when_it_is_newer() -> None:
    buffer = SnapshotBuffer()
    assert buffer.lend(Version()) is None
    publish(buffer, 3)
    assert buffer.lend(Version(1, 3)) is None
    stored = buffer.lend(Version(1, 2))
    assert stored is not None
    assert stored.version == Version(1, 3)
    other = buffer.lend(Version(7, 900))  # of another publisher
    assert other is stored
    buffer.close()


def test_while_many_are_lent_readers_share_the_newest_of_them() -> None:
    buffer = SnapshotBuffer()
    for number in range(MAX_LENT):
        publish(buffer, number)
        assert buffer.lend(Version()) is not None
    publish(buffer, 100)
    shared = buffer.lend(Version())
    assert shared is not None
    assert shared.version.number == MAX_LENT - 1
    assert buffer.lend(shared.version) is None
    buffer.close()


def test_who_keeps_a_snapshot_keeps_it_for_good_and_others_get_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SHARE_SECONDS", 0.0)
    buffer = SnapshotBuffer()
    kept = []
    for number in range(5 * MAX_LENT):
        publish(buffer, number)
        stored = buffer.lend(Version(1, number - 1))
        assert stored is not None
        assert stored.version.number == number
        kept.append(stored)
    assert buffer.retired == 4 * MAX_LENT
    assert buffer.memory <= (MAX_LENT + 2) * 64 * 1024
    for stored in kept:
        buffer.give_back(stored)
    assert buffer.lent == 0
    buffer.close()
