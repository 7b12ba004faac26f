"""Batches: arrays that are allocated once and filled again and again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime.schema import Field, Schema

Axis = int | None | Mapping[str, int | None]
"""None: stack items on a new first axis. A number: concatenate them along that axis. Or a mapping with one per array."""


class Batch:
    """Items that were read together. The memory is reused by the next read but one."""

    __slots__ = (
        "_rows",
        "arrays",
        "firsts",
        "fresh",
        "incarnations",
        "lag",
        "sequences",
        "stale",
        "versions",
        "writers",
    )

    def __init__(self, arrays: dict[str, np.ndarray], firsts: list[np.ndarray], count: int) -> None:
        self.arrays = arrays
        """The items' arrays, stacked or concatenated."""
        self.firsts = firsts
        """The same memory as `[item, ...]`, in the schema's order; this is what gets filled."""
        self._rows: list[list[np.ndarray] | None] = [None] * count
        self.versions = np.zeros(count, np.int64)
        """Version of the policy that made each item."""
        self.lag = np.zeros(count, np.int64)
        """How many versions each item is behind the reader's."""
        self.fresh = np.ones(count, np.bool_)
        """False for items that lag more than the reader's `max_policy_lag`."""
        self.stale = 0
        """Number of those."""
        self.writers = np.zeros(count, np.int32)
        """Who wrote each item: an index into the reader's `writers`."""
        self.incarnations = np.zeros(count, np.int64)
        """The writer's incarnation."""
        self.sequences = np.zeros(count, np.int64)
        """Each item's sequence number at its writer, from 1."""

    def __len__(self) -> int:
        return len(self.versions)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def row(self, at: int) -> list[np.ndarray]:
        """Where one item goes, in the schema's order. Cached, because creating views of large items runs with cold
        caches."""
        row = self._rows[at]
        if row is None:
            row = self._rows[at] = [array[at, ...] for array in self.firsts]
        return row


class BatchBuffers:
    """Allocates batches of one schema, size and axis."""

    def __init__(self, schema: Schema, axis: Axis, count: int, buffers: int) -> None:
        self.count = count
        self._layout = [
            (field, _axis_of(field, axis), _shape(field, _axis_of(field, axis), count))
            for field in schema.fields
        ]
        self._own_batches = [self._new_batch({}) for _ in range(buffers)]
        self._next = 0
        self._caller_batches: list[Batch] = []

    def next(self, out: Mapping[str, np.ndarray] | None) -> Batch:
        """The batch to fill now: one of ours, or one made of the caller's arrays."""
        if out is not None:
            return self._for_arrays(out)
        self._next = (self._next + 1) % len(self._own_batches)
        return self._own_batches[self._next]

    def _for_arrays(self, out: Mapping[str, np.ndarray]) -> Batch:
        for batch in self._caller_batches:
            if all(out.get(name) is array for name, array in batch.arrays.items()):
                return batch
        self._caller_batches = [*self._caller_batches[1 - len(self._own_batches) :], self._new_batch(out)]
        return self._caller_batches[-1]

    def _new_batch(self, out: Mapping[str, np.ndarray]) -> Batch:
        arrays, firsts = {}, []
        for field, axis, shape in self._layout:
            array = out.get(field.name)
            if array is None and out:
                raise UserError(f"array {field.name!r} is missing in out", fix=f"give one like {field}")
            if array is None:
                array = np.zeros(shape, field.dtype)
            elif array.shape != shape or array.dtype != field.dtype or not array.flags.c_contiguous:
                raise UserError(
                    f"out[{field.name!r}] is {Field(field.name, array.dtype, array.shape)}",
                    fix=f"it must be contiguous and {Field(field.name, field.dtype, shape)}",
                )
            arrays[field.name] = array
            firsts.append(_items_first(array, field, axis, self.count))
        return Batch(arrays, firsts, self.count)


def check_axis(schema: Schema, axis: Axis) -> None:
    """Refuse an axis that the arrays do not have."""
    if isinstance(axis, Mapping):
        unknown = sorted(set(axis) - set(schema.names))
        if unknown:
            raise UserError(
                f"axis names array {unknown[0]!r}, which is not in the schema", fix=f"it is {schema}"
            )
    for field in schema.fields:
        chosen = _axis_of(field, axis)
        if chosen is not None and not 0 <= chosen < len(field.shape):
            raise UserError(
                f"array {field} has no axis {chosen} to concatenate along",
                fix=f"set the axis per array: axis={{{field.name!r}: None, ...}} stacks it",
            )


def _axis_of(field: Field, axis: Axis) -> int | None:
    return axis.get(field.name) if isinstance(axis, Mapping) else axis


def _item_shape(field: Field) -> tuple[int, ...]:
    return tuple(n or 0 for n in field.shape)


def _shape(field: Field, axis: int | None, count: int) -> tuple[int, ...]:
    item_shape = _item_shape(field)
    if axis is None:
        return (count, *item_shape)
    return (*item_shape[:axis], count * item_shape[axis], *item_shape[axis + 1 :])


def _items_first(array: np.ndarray, field: Field, axis: int | None, count: int) -> np.ndarray:
    """A view `[count, *item]` of a batch's array."""
    if axis is None:
        return array
    item_shape = _item_shape(field)
    split = array.reshape(*item_shape[:axis], count, *item_shape[axis:])
    return np.moveaxis(split, axis, 0)
