"""The items of a table, in memory that is allocated once: one array for each field, used round and round.

Items are numbered by their *position*, which only grows; position p lies in slot p modulo the number of slots. The
slots are divided into segments of neighbors, which is what snapshots write. There is at least one segment more than
the capacity needs: an item that was evicted is overwritten a while later, which gives a snapshot time to read it.
"""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from callsheet.runtime.schema import Schema

SEGMENT_BYTES = 32 << 20
"""Bytes of a segment, about."""
_MIN_SEGMENTS = 16
"""Segments that a table is divided into at least, so that the spare one costs little."""
PREFAULT_BYTES = 256 << 20
"""Bytes that are taken before they are needed, at most."""
_STEP = 256 << 10
"""Bytes in one call. Whoever asks for memory in this process waits for it, also ZeroMQ's threads; on a busy machine,
where a call may be interrupted, 4 MiB at a time kept new clients waiting for seconds."""
_PAGE = 4096
_MADV_POPULATE_WRITE = 23
"""Linux's MADV_POPULATE_WRITE: pages are there as if they had been written, and keep what is in them."""


class ItemRing:
    """Slots for items. Written by one thread; others may read what `intact` confirms afterwards."""

    def __init__(self, schema: Schema, capacity: int) -> None:
        self.schema = schema
        self.capacity = capacity
        self.segment = max(
            1, min(SEGMENT_BYTES // max(1, schema.item_bytes), math.ceil(capacity / _MIN_SEGMENTS))
        )
        self.slots = (math.ceil(capacity / self.segment) + 1) * self.segment
        self.arrays: dict[str, NDArray[np.generic]] = {
            field.name: np.empty((self.slots, *(n for n in field.shape if n is not None)), field.dtype)
            for field in schema.fields
        }
        self.next = 0
        """The position of the next item."""
        self._writing_up_to = 0
        """Up to where slots have been or are being written."""

    def write(self, items: Mapping[str, NDArray[np.generic]], skip: int, count: int) -> int:
        """Copy items behind the newest, leaving out the first `skip`; the position of the first."""
        start = self.next
        self._writing_up_to = (
            start + count
        )  # before the copy: a reader on another thread must not trust what it reads
        for slot, length in self.slot_ranges(start, count):
            for name, array in self.arrays.items():
                array[slot : slot + length] = items[name][skip : skip + length]
            skip += length
        self.next = start + count
        return start

    def slot_ranges(self, start: int, count: int) -> Iterator[tuple[int, int]]:
        """The slots of neighboring positions, as (slot, length): one piece, or two around the end."""
        slot = start % self.slots
        length = min(count, self.slots - slot)
        if length:
            yield slot, length
        if count > length:
            yield 0, count - length

    def gather(self, slots: NDArray[np.int64], into: Mapping[str, NDArray[np.generic]]) -> None:
        """Copy the items in some slots."""
        for name, array in self.arrays.items():
            array.take(slots, axis=0, out=into[name], mode="clip")  # "raise" would copy twice

    def position_of(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """The newest positions that lie in these slots."""
        last = self.next - 1
        return last - (last - slots) % self.slots

    def reset_to(self, position: int) -> None:
        """Begin at a position, with nothing in any slot."""
        self.next = self._writing_up_to = position

    def intact(self, start: int) -> bool:
        """Whether nothing from this position on has been overwritten, not even in part."""
        return self._writing_up_to <= start + self.slots

    def memory(self, start: int, count: int) -> list[memoryview]:
        """The bytes of neighboring positions within one segment, field by field."""
        slot = start % self.slots
        return [array[slot : slot + count].reshape(-1).view(np.uint8).data for array in self.arrays.values()]


class Prefaulter:
    """Follows the writing of a ring on its first round."""

    def __init__(self, ring: ItemRing) -> None:
        self._ring = ring
        self._ahead = max(1, PREFAULT_BYTES // max(1, ring.schema.item_bytes))
        self.prefaulted = 0
        """Slots whose memory was asked for."""
        self._thread: threading.Thread | None = None
        self._supported = sys.platform == "linux"

    def on_written(self, position: int) -> None:
        """Items have been written up to here."""
        if (
            position + self._ahead // 2 < self.prefaulted
            or self.prefaulted >= self._ring.slots
            or not self._supported
        ):
            return
        if self._thread is None or not self._thread.is_alive():
            start = max(self.prefaulted, position)
            self.prefaulted = min(self._ring.slots, max(start, self.prefaulted) + self._ahead)
            self._thread = threading.Thread(
                target=self._prefault, args=(start, self.prefaulted), name="callsheet-warming", daemon=True
            )
            self._thread.start()

    def wait(self) -> None:
        """Until what was asked for is there."""
        if self._thread is not None:
            self._thread.join()

    def _prefault(self, start: int, stop: int) -> None:
        advise = ctypes.CDLL(None).madvise  # called without the interpreter's lock
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for array in self._ring.arrays.values():
            size = array.strides[0]
            begin = -(-(array.ctypes.data + start * size) // _PAGE) * _PAGE
            end = (array.ctypes.data + stop * size) // _PAGE * _PAGE
            for at in range(begin, end, _STEP):
                if advise(at, min(_STEP, end - at), _MADV_POPULATE_WRITE) != 0:
                    self._supported = False
                    return
