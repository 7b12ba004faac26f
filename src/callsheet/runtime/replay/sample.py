"""A batch that was sampled, and what a learner needs to know about how its items were chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class Sample:
    """Items along the first axis of each array. It is valid until the next call of `sample`; copy what must stay."""

    arrays: dict[str, NDArray[np.generic]]
    keys: NDArray[np.uint64]
    """Names each item, to change its priority."""
    probabilities: NDArray[np.float64]
    """The chance that each draw had to be this item."""
    size: int
    """Items in the replay at that time, all shards together."""

    def weights(self, beta: float) -> NDArray[np.float32]:
        """Importance weights: (size x probability) to the power of -beta, divided by the largest of the batch."""
        weights = np.power(self.probabilities * max(1, self.size), -beta)
        weights /= weights.max()
        return weights.astype(np.float32)
