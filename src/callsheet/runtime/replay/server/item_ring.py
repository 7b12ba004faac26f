"""A table's items, in a ring of preallocated memory: one array per field.

Items are numbered by *position*, which only grows; position p lies in slot p modulo the number of slots. Slots are
grouped into segments, the unit that snapshots write. There is at least one segment more than the capacity needs, so
that an evicted item is overwritten later and a snapshot has time to read it.
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
"""Approximate bytes of a segment."""
_MIN_SEGMENTS = 16
"""A table has at least this many segments, so that the spare one costs little."""
PREFAULT_BYTES = 256 << 20
"""Memory to fault in before it is needed."""
_STEP = 256 << 10
"""Bytes per call. Other threads that need memory wait for each call, even ZeroMQ's; on a busy machine, calls of 4 MiB
made new clients wait for seconds."""
_PAGE = 4096
_MADV_POPULATE_WRITE = 23
"""Linux's MADV_POPULATE_WRITE: faults pages in as if written, and keeps their content."""


class ItemRing:
    """Slots for items. One thread writes; others may read, and then check with `intact` what they read."""

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
        """Position of the next item."""
        self._writing_up_to = 0
        """Up to here slots have been or are being written."""

    def write(self, items: Mapping[str, NDArray[np.generic]], skip: int, count: int) -> int:
        """Append items, without the first `skip`; return the position of the first."""
        start = self.next
        self._writing_up_to = start + count  # before the copy: other threads must not trust what they read
        for slot, length in self.slot_ranges(start, count):
            for name, array in self.arrays.items():
                array[slot : slot + length] = items[name][skip : skip + length]
            skip += length
        self.next = start + count
        return start

    def slot_ranges(self, start: int, count: int) -> Iterator[tuple[int, int]]:
        """The slots of consecutive positions as (slot, length) ranges: one, or two around the end."""
        slot = start % self.slots
        length = min(count, self.slots - slot)
        if length:
            yield slot, length
        if count > length:
            yield 0, count - length

    def gather(self, slots: NDArray[np.int64], into: Mapping[str, NDArray[np.generic]]) -> None:
        """Copy the items in these slots."""
        for name, array in self.arrays.items():
            array.take(slots, axis=0, out=into[name], mode="clip")  # "raise" would copy twice

    def position_of(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """The newest positions in these slots."""
        last = self.next - 1
        return last - (last - slots) % self.slots

    def reset_to(self, position: int) -> None:
        """Start at a position, with all slots empty."""
        self.next = self._writing_up_to = position

    def intact(self, start: int) -> bool:
        """Whether nothing from this position on has been overwritten, not even partly."""
        return self._writing_up_to <= start + self.slots

    def memory(self, start: int, count: int) -> list[memoryview]:
        """The bytes of consecutive positions within one segment, field by field."""
        slot = start % self.slots
        return [array[slot : slot + count].reshape(-1).view(np.uint8).data for array in self.arrays.values()]


class Prefaulter:
    """Faults in the memory of a ring ahead of its first round of writes, in a thread.

    The first touch of memory is slow, in virtual machines several times slower than copying the item. The kernel does
    it for the part that comes next, so a table takes no more memory than it will soon use. Before Linux 5.14 the
    first round is just slower.
    """

    def __init__(self, ring: ItemRing) -> None:
        self._ring = ring
        self._ahead = max(1, PREFAULT_BYTES // max(1, ring.schema.item_bytes))
        self.prefaulted = 0
        """Slots whose memory was requested."""
        self._thread: threading.Thread | None = None
        self._supported = sys.platform == "linux"

    def on_written(self, position: int) -> None:
        """Items have been written up to this position."""
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
        """Wait until the requested memory is there."""
        if self._thread is not None:
            self._thread.join()

    def _prefault(self, start: int, stop: int) -> None:
        advise = ctypes.CDLL(None).madvise  # runs without the GIL
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for array in self._ring.arrays.values():
            size = array.strides[0]
            begin = -(-(array.ctypes.data + start * size) // _PAGE) * _PAGE
            end = (array.ctypes.data + stop * size) // _PAGE * _PAGE
            for at in range(begin, end, _STEP):
                if advise(at, min(_STEP, end - at), _MADV_POPULATE_WRITE) != 0:
                    self._supported = False
                    return
