"""Many small items in one frame: array after array, so that a receiver copies all of them in one go."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime.schema import Schema

FRAME_BYTES = 64 * 1024
"""Items smaller than this share a frame."""
MAX_ITEMS = 1024
"""Items in a frame, however small: a schema remembers so many layouts."""

ItemViews = list[tuple[np.ndarray, str, tuple[int, ...], np.dtype[np.generic]]]
"""Where the items of a frame go: each array `[capacity, *shape]` with what one item's array must be."""


class FramePacker:
    """How items of a schema fill a frame, one after the other."""

    def __init__(self, schema: Schema, frame_bytes: int = FRAME_BYTES, most: int = MAX_ITEMS) -> None:
        if not schema.fixed:
            loose = next(str(field) for field in schema.fields if None in field.shape)
            raise UserError(
                f"array {loose} has a length that may differ from item to item",
                fix="give every array one shape: pad shorter ones, and send a mask along",
            )
        self.schema = schema
        self.capacity = _capacity(schema, frame_bytes, min(most, MAX_ITEMS))
        self._layout = schema.layout(self.capacity)
        self.nbytes = self._layout.nbytes
        """Of a full frame."""
        self._fields = [
            (field.name, tuple(n for n in field.shape if n is not None), np.dtype(field.dtype.str))
            for field in schema.fields
        ]

    def views(self, memory: memoryview) -> ItemViews:
        """The places of the items in this memory."""
        views = self._layout.views(memory)
        return [(views[name], name, shape, dtype) for name, shape, dtype in self._fields]

    def put(self, views: ItemViews, index: int, arrays: Mapping[str, object]) -> None:
        """Copy one item to its place; what is not as agreed is refused with a clear text."""
        if len(arrays) != len(views):
            self.schema.check(arrays)
        try:
            for view, name, shape, dtype in views:
                array = arrays[name]
                if array.shape != shape or array.dtype != dtype:  # type: ignore[attr-defined]
                    raise TypeError
                view[index] = array
        except (KeyError, AttributeError, TypeError):
            checked = self.schema.check(arrays)
            for view, name, _, _ in views:
                view[index] = checked[name]

    def compact(self, memory: memoryview, count: int) -> int:
        """Make a frame of so many items of one that could have held more; its length."""
        if count == self.capacity:
            return self.nbytes
        layout = self.schema.layout(count)
        for (_, dtype, shape, new), (_, _, _, old) in zip(layout.places, self._layout.places, strict=True):
            if new != old:
                length = dtype.itemsize * math.prod(shape)
                memory[new : new + length] = memory[old : old + length]
        return layout.nbytes


def _capacity(schema: Schema, frame_bytes: int, most: int) -> int:
    field = sum(field.dtype.itemsize * math.prod(n or 0 for n in field.shape) for field in schema.fields)
    count = max(1, min(most, frame_bytes // max(1, field)))
    while count > 1 and schema.layout(count).nbytes > frame_bytes:
        count -= 1
    return count
