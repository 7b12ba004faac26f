"""Continuous actions between a policy's units, where the range is -1..1, and the environment's."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.spaces import Continuous

Floats = NDArray[np.float32]

MIN_LOG_STD = -20.0
MAX_LOG_STD = 2.0
"""Bounds of a squashed Gaussian's log deviation, which is a network's output."""
MASKED = -1e9
"""The logit of a forbidden action: its probability is exactly 0, and no gradient becomes NaN."""
HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class ActionScaling(NamedTuple):
    """Environment's action = middle + half x policy's action. Unbounded dimensions keep their units."""

    middle: Floats
    half: Floats

    @classmethod
    def of(cls, action: Continuous) -> ActionScaling:
        low, high = np.asarray(action.low, np.float64), np.asarray(action.high, np.float64)
        bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
        # Finite values where there is no bound: infinity minus infinity would warn.
        low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        return cls(((low + high) / 2).astype(np.float32), ((high - low) / 2).astype(np.float32))

    @property
    def trivial(self) -> bool:
        """Whether the units are equal."""
        return bool((self.middle == 0).all() and (self.half == 1).all())
