"""The items of a table, in memory that is allocated once: one array for each field, used round and round.

Items are numbered by their *position*, which only grows; position p lies in slot p modulo the number of slots. The
slots are divided into segments of neighbours, which is what snapshots write. There is at least one segment more than
the capacity needs: an item that was evicted is overwritten a while later, which gives a snapshot time to read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from callsheet.runtime.schema import Schema

SEGMENT = 32 << 20
"""Bytes of a segment, about."""
_FEWEST_SEGMENTS = 16
"""Segments that a table is divided into at least, so that the spare one costs little."""


def item_bytes(schema: Schema) -> int:
    """Bytes of one item."""
    return sum(
        math.prod(n for n in field.shape if n is not None) * field.dtype.itemsize for field in schema.fields
    )


class Ring:
    """Slots for items. Written by one thread; others may read what `intact` confirms afterwards."""

    def __init__(self, schema: Schema, capacity: int) -> None:
        self.schema = schema
        self.capacity = capacity
        self.segment = max(
            1, min(SEGMENT // max(1, item_bytes(schema)), math.ceil(capacity / _FEWEST_SEGMENTS))
        )
        self.slots = (math.ceil(capacity / self.segment) + 1) * self.segment
        self.arrays: dict[str, NDArray[np.generic]] = {
            field.name: np.empty((self.slots, *(n for n in field.shape if n is not None)), field.dtype)
            for field in schema.fields
        }
        self.next = 0
        """The position of the next item."""
        self._touched = 0
        """Up to where slots have been or are being written."""

    def write(self, items: Mapping[str, NDArray[np.generic]], skip: int, count: int) -> int:
        """Copy items behind the newest, leaving out the first `skip`; the position of the first."""
        start = self.next
        self._touched = (
            start + count
        )  # before the copy: a reader on another thread must not trust what it reads
        for slot, length in self.pieces(start, count):
            for name, array in self.arrays.items():
                array[slot : slot + length] = items[name][skip : skip + length]
            skip += length
        self.next = start + count
        return start

    def pieces(self, start: int, count: int) -> Iterator[tuple[int, int]]:
        """The slots of neighbouring positions, as (slot, length): one piece, or two around the end."""
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

    def move_to(self, position: int) -> None:
        """Begin at a position, with nothing in any slot."""
        self.next = self._touched = position

    def intact(self, start: int) -> bool:
        """Whether nothing from this position on has been overwritten, not even in part."""
        return self._touched <= start + self.slots

    def memory(self, start: int, count: int) -> list[memoryview]:
        """The bytes of neighbouring positions within one segment, field by field."""
        slot = start % self.slots
        return [array[slot : slot + count].reshape(-1).view(np.uint8).data for array in self.arrays.values()]
