"""Memory that is taken from the system before it is needed: nothing in it changes, and not more is taken than that."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from callsheet.runtime.replay.server import item_ring
from callsheet.runtime.replay.server.item_ring import ItemRing, Prefaulter
from callsheet.runtime.schema import Schema

ITEM = Schema.of({"row": np.zeros(1 << 16, np.uint8), "flag": np.zeros((), np.bool_)})


def resident(array: np.ndarray) -> int:
    """Bytes of an array whose memory is there."""
    start = array.ctypes.data // 4096 * 4096
    pages = -(-(array.ctypes.data + array.nbytes - start) // 4096)
    found = (ctypes.c_ubyte * pages)()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(start), ctypes.c_size_t(pages * 4096), found) == 0
    return 4096 * sum(page & 1 for page in found)


def test_what_is_written_stays_and_only_the_next_part_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_ring, "PREFAULT_BYTES", 32 << 20)
    ring = ItemRing(ITEM, 4096)
    ahead = Prefaulter(ring)
    items = {"row": np.full((1, 1 << 16), 7, np.uint8), "flag": np.ones(1, np.bool_)}
    for _ in range(10):
        ring.write(items, 0, 1)
    assert resident(ring.arrays["row"]) < 8 << 20
    ahead.on_written(ring.next)
    ahead.wait()
    assert ahead.prefaulted == 10 + (32 << 20) // ITEM_BYTES
    taken = resident(ring.arrays["row"])
    assert 30 << 20 < taken < 40 << 20, "the next part, and not the 256 MiB of the whole table"
    assert (ring.arrays["row"][:10] == 7).all()
    ahead.on_written(11)
    assert ahead.prefaulted == 10 + (32 << 20) // ITEM_BYTES, "there is enough for now"


def test_after_the_first_round_there_is_nothing_to_do() -> None:
    ring = ItemRing(ITEM, 64)
    ahead = Prefaulter(ring)
    ahead.on_written(1)
    ahead.wait()
    assert ahead.prefaulted == ring.slots
    ahead.on_written(10_000)
    assert ahead.prefaulted == ring.slots


def test_a_system_that_cannot_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_ring, "_MADV_POPULATE_WRITE", 9999)
    ring = ItemRing(ITEM, 64)
    ahead = Prefaulter(ring)
    ahead.on_written(1)
    ahead.wait()
    ring.write({"row": np.ones((1, 1 << 16), np.uint8), "flag": np.ones(1, np.bool_)}, 0, 1)
    assert ring.next == 1


ITEM_BYTES = (1 << 16) + 1
