"""Running mean and variance of observations. They are part of the snapshot, so that actors normalize alike."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.spaces import Spaces

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]

CLIP = 10.0
"""Normalized observations are clipped to this many standard deviations."""
_EPSILON = 1e-8


class Moments:
    """Count, mean and variance of all rows so far, in double precision."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean: Doubles = np.zeros(shape)
        self.var: Doubles = np.ones(shape)
        self.count = 0.0

    def add(self, rows: NDArray[np.generic]) -> None:
        """Merge rows [N, *shape], with the same result as one pass over all rows (Chan's formula)."""
        number = len(rows)
        if number == 0:
            return
        mean = rows.mean(axis=0, dtype=np.float64)
        var = rows.var(axis=0, dtype=np.float64)
        total = self.count + number
        away = mean - self.mean
        self.var = (self.var * self.count + var * number + away**2 * (self.count * number / total)) / total
        self.mean = self.mean + away * (number / total)
        self.count = total


class Normalizer:
    """The moments of every floating-point observation, named as in a snapshot."""

    def __init__(self, spaces: Spaces) -> None:
        self.moments = {
            key: Moments(array.shape)
            for key, array in spaces.observations.items()
            if array.dtype.startswith("float")
        }

    def update(self, observations: Mapping[str, NDArray[np.generic]], valid: NDArray[np.generic]) -> None:
        """Add observations [..., *shape] by name, except where `valid` [...] is 0."""
        kept = valid != 0
        whole = bool(kept.all())
        for key, moments in self.moments.items():
            rows = observations[key]
            shape = moments.mean.shape
            moments.add(rows.reshape(-1, *shape) if whole else rows[kept])

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """`norm.<key>.mean`, `.var` and `.count`."""
        arrays: dict[str, NDArray[np.generic]] = {}
        for key, moments in self.moments.items():
            arrays[f"norm.{key}.mean"] = moments.mean
            arrays[f"norm.{key}.var"] = moments.var
            arrays[f"norm.{key}.count"] = np.asarray(moments.count)
        return arrays

    def load(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        for key, moments in self.moments.items():
            moments.mean = np.array(snapshot[f"norm.{key}.mean"], np.float64)
            moments.var = np.array(snapshot[f"norm.{key}.var"], np.float64)
            moments.count = float(snapshot[f"norm.{key}.count"])


def scale(snapshot: Mapping[str, NDArray[np.generic]], key: str) -> tuple[Floats, Floats] | None:
    """What to subtract from a flattened observation and what to multiply it by; None if there are no statistics."""
    mean = snapshot.get(f"norm.{key}.mean")
    if mean is None:
        return None
    var = snapshot[f"norm.{key}.var"].astype(np.float64)
    factor = 1.0 / np.sqrt(var + _EPSILON)
    return mean.astype(np.float32).reshape(-1), factor.astype(np.float32).reshape(-1)
