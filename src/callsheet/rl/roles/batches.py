"""Batches of rollouts: of whoever has played, or one of every actor in the order of their indices."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callsheet.runtime import TrajectoryReader

log = logging.getLogger("callsheet.rl")
Arrays = dict[str, NDArray[Any]]


class AsTheyCome:
    """So many rollouts of whoever has played; `fresh` tells which environments' are not too old."""

    def __init__(self, reader: TrajectoryReader, count: int) -> None:
        self._reader = reader
        self._count = count

    def read(self, version: int) -> tuple[Arrays, float]:
        """A batch for the learner of this version, and how much older its policies are on average."""
        self._reader.version = version
        batch = self._reader.read(self._count)
        arrays = dict(batch.arrays)
        arrays["fresh"] = np.repeat(batch.fresh, arrays["reward"].shape[1] // self._count)
        return arrays, float(batch.lag.mean())


class InStep:
    """One rollout of every actor, played with the version that was published last.

    An actor that is started again plays once more with it; what is of another version, or comes twice, does not count.
    """

    def __init__(self, reader: TrajectoryReader, actors: int) -> None:
        self._reader = reader
        self._actors = actors
        self._arrays: Arrays = {}

    def read(self, version: int) -> tuple[Arrays, float]:
        """A batch for the learner of this version; its policy is always one update older."""
        self._reader.version = version
        missing = set(range(self._actors))
        while missing:
            rollout = self._reader.read(1)
            index = _index_of(self._reader.writers[rollout.writers[0]])
            made = int(rollout.versions[0])
            if made != version or index not in missing:
                log.info("a rollout of actor/%s does not count: version %s, wanted %s", index, made, version)
                continue
            missing.remove(index)
            self._place(rollout.arrays, index)
        return dict(self._arrays), min(1.0, version)

    def _place(self, arrays: Arrays, index: int) -> None:
        for name, array in arrays.items():
            axis = 0 if name == "state" else 1
            width = array.shape[axis]
            if name not in self._arrays:
                shape = list(array.shape)
                shape[axis] *= self._actors
                self._arrays[name] = np.empty(shape, array.dtype)
            where = slice(index * width, (index + 1) * width)
            whole = self._arrays[name]
            (whole[where] if axis == 0 else whole[:, where])[...] = array


def _index_of(name: str) -> int:
    """Which actor a writer is; -1 when its name does not say, as a peer can call itself what it likes."""
    found = re.fullmatch(r"[^/]*/([0-9]{1,9})(/.*)?", name)
    return int(found[1]) if found else -1
