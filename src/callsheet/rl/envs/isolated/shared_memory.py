"""Memory that workers share with their owner: the arrays of one step, at fixed offsets."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.spaces import Discrete, Spaces

_ALIGNMENT = 64


def anonymous_file() -> int:
    """A file without a name, which disappears with its last user."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("callsheet-environments")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class SharedArrays:
    """The arrays of all environments, of which a worker uses its own rows. The messages between both sides decide who may
    write."""

    def __init__(self, file: int, spaces: Spaces, count: int, rows: slice = slice(None)) -> None:
        fields: dict[str, tuple[str, tuple[int, ...]]] = {
            f"obs.{name}": (array.dtype, array.shape) for name, array in spaces.observations.items()
        }
        fields |= {"rewards": ("float32", ())}
        fields |= dict.fromkeys(("terminated", "truncated", "valid", "first"), ("bool", ()))
        if isinstance(spaces.action, Discrete):
            fields["actions"] = ("int64", ())
            if spaces.masks:
                fields["masks"] = ("uint8", (spaces.action.n,))
        else:
            fields["actions"] = ("float32", (spaces.action.size,))
        offsets, end = {}, 0
        for name, (dtype, shape) in fields.items():
            offsets[name] = end
            size = int(np.prod(shape, dtype=np.int64)) * count * np.dtype(dtype).itemsize
            end = -(-(end + size) // _ALIGNMENT) * _ALIGNMENT
        if os.fstat(file).st_size < end:
            os.ftruncate(file, end)
        self._map = mmap.mmap(file, end)
        self.arrays: dict[str, NDArray[Any]] = {
            name: np.ndarray((count, *shape), dtype, self._map, offsets[name])[rows]
            for name, (dtype, shape) in fields.items()
        }
        self.observations = {name: self.arrays[f"obs.{name}"] for name in spaces.observations}
        self.masks: NDArray[np.uint8] | None = self.arrays.get("masks")
