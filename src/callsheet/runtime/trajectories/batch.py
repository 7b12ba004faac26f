"""Where items become a batch: arrays that are made once and filled again and again."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime.schema import Field, Schema

Axis = int | None | Mapping[str, int | None]
"""None: items are stacked on a new first axis. A number: they are joined along that axis. Or for each array its own."""


class Batch:
    """Items that were read together. It is filled again by the next read but one."""

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
        """The items' arrays, joined."""
        self.firsts = firsts
        """The same memory as `[item, ...]`, in the schema's order: what is filled."""
        self._rows: list[list[np.ndarray] | None] = [None] * count
        self.versions = np.zeros(count, np.int64)
        """Of the policy that made each item."""
        self.lag = np.zeros(count, np.int64)
        """How many versions older that is than the reader's own."""
        self.fresh = np.ones(count, np.bool_)
        """False for items that are older than the reader's `max_policy_lag`."""
        self.stale = 0
        """How many those are."""
        self.writers = np.zeros(count, np.int32)
        """Who wrote each item: a place in the reader's `writers`."""
        self.incarnations = np.zeros(count, np.int64)
        """Which start of that writer."""
        self.sequences = np.zeros(count, np.int64)
        """Which of its items, from 1."""

    def __len__(self) -> int:
        return len(self.versions)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def row(self, at: int) -> list[np.ndarray]:
        """Where one item goes, in the schema's order: made once, as a large item's arrays are looked for with cold caches."""
        found = self._rows[at]
        if found is None:
            found = self._rows[at] = [array[at, ...] for array in self.firsts]
        return found


class BatchBuffers:
    """Makes batches of one schema, size and axis."""

    def __init__(self, schema: Schema, axis: Axis, count: int, buffers: int) -> None:
        self.count = count
        self._plan = [
            (one, _axis_of(one, axis), _shape(one, _axis_of(one, axis), count)) for one in schema.fields
        ]
        self._ring = [self._make({}) for _ in range(buffers)]
        self._turn = 0
        self._given: list[Batch] = []

    def next(self, out: Mapping[str, np.ndarray] | None) -> Batch:
        """The batch to fill now: one of our own, or one of the caller's arrays."""
        if out is not None:
            return self._of(out)
        self._turn = (self._turn + 1) % len(self._ring)
        return self._ring[self._turn]

    def _of(self, out: Mapping[str, np.ndarray]) -> Batch:
        for batch in self._given:
            if all(out.get(name) is array for name, array in batch.arrays.items()):
                return batch
        self._given = [*self._given[1 - len(self._ring) :], self._make(out)]
        return self._given[-1]

    def _make(self, out: Mapping[str, np.ndarray]) -> Batch:
        arrays, firsts = {}, []
        for one, axis, shape in self._plan:
            array = out.get(one.name)
            if array is None and out:
                raise UserError(f"array {one.name!r} is missing in out", fix=f"give one like {one}")
            if array is None:
                array = np.zeros(shape, one.dtype)
            elif array.shape != shape or array.dtype != one.dtype or not array.flags.c_contiguous:
                raise UserError(
                    f"out[{one.name!r}] is {Field(one.name, array.dtype, array.shape)}",
                    fix=f"it must be contiguous and {Field(one.name, one.dtype, shape)}",
                )
            arrays[one.name] = array
            firsts.append(_items_first(array, one, axis, self.count))
        return Batch(arrays, firsts, self.count)


def check_axis(schema: Schema, axis: Axis) -> None:
    """Refuse an axis that the arrays do not have."""
    if isinstance(axis, Mapping):
        unknown = sorted(set(axis) - set(schema.names))
        if unknown:
            raise UserError(
                f"axis names array {unknown[0]!r}, which is not in the schema", fix=f"it is {schema}"
            )
    for one in schema.fields:
        found = _axis_of(one, axis)
        if found is not None and not 0 <= found < len(one.shape):
            raise UserError(
                f"array {one} has no axis {found} to be joined along",
                fix=f"give each array its own: axis={{{one.name!r}: None, ...}} stacks it",
            )


def _axis_of(one: Field, axis: Axis) -> int | None:
    return axis.get(one.name) if isinstance(axis, Mapping) else axis


def _lengths(one: Field) -> tuple[int, ...]:
    return tuple(n or 0 for n in one.shape)


def _shape(one: Field, axis: int | None, count: int) -> tuple[int, ...]:
    lengths = _lengths(one)
    if axis is None:
        return (count, *lengths)
    return (*lengths[:axis], count * lengths[axis], *lengths[axis + 1 :])


def _items_first(array: np.ndarray, one: Field, axis: int | None, count: int) -> np.ndarray:
    """A view `[count, *item]` of a batch's array."""
    if axis is None:
        return array
    lengths = _lengths(one)
    split = array.reshape(*lengths[:axis], count, *lengths[axis:])
    return np.moveaxis(split, axis, 0)
