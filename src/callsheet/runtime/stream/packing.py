"""Packs many small items into one frame, array by array, so that a receiver copies all of them at once."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime.schema import Schema

FRAME_BYTES = 64 * 1024
"""Smaller items share a frame of this size."""
MAX_ITEMS = 1024
"""Items per frame, however small they are: a schema caches as many layouts."""

ItemViews = list[tuple[np.ndarray, str, tuple[int, ...], np.dtype[np.generic]]]
"""Where the items of a frame go: each array `[capacity, *shape]`, and the name, shape and type of one item's array."""


class FramePacker:
    """Packs items of one schema into frames."""

    def __init__(self, schema: Schema, frame_bytes: int = FRAME_BYTES, max_items: int = MAX_ITEMS) -> None:
        if not schema.fixed:
            loose = next(str(field) for field in schema.fields if None in field.shape)
            raise UserError(
                f"array {loose} has a length that varies between items",
                fix="give every array a fixed shape: pad shorter ones and add a mask",
            )
        self.schema = schema
        self.capacity = _capacity(schema, frame_bytes, min(max_items, MAX_ITEMS))
        self._layout = schema.layout(self.capacity)
        self.nbytes = self._layout.nbytes
        """Size of a full frame."""
        self._fields = [
            (field.name, tuple(n for n in field.shape if n is not None), np.dtype(field.dtype.str))
            for field in schema.fields
        ]

    def views(self, memory: memoryview) -> ItemViews:
        """The item arrays in this memory."""
        views = self._layout.views(memory)
        return [(views[name], name, shape, dtype) for name, shape, dtype in self._fields]

    def put(self, views: ItemViews, index: int, arrays: Mapping[str, object]) -> None:
        """Copy one item to its place; raise a clear error if it does not match the schema."""
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
        """Close up the arrays of a frame that is not full; return its length."""
        if count == self.capacity:
            return self.nbytes
        layout = self.schema.layout(count)
        for (_, dtype, shape, new), (_, _, _, old) in zip(layout.places, self._layout.places, strict=True):
            if new != old:
                length = dtype.itemsize * math.prod(shape)
                memory[new : new + length] = memory[old : old + length]
        return layout.nbytes


def _capacity(schema: Schema, frame_bytes: int, limit: int) -> int:
    count = max(1, min(limit, frame_bytes // max(1, schema.item_bytes)))
    while count > 1 and schema.layout(count).nbytes > frame_bytes:
        count -= 1
    return count
