"""The interface of a learner, which an algorithm in any framework can implement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


class Learner(Protocol):
    """NumPy batches in, named arrays out. `callsheet.rl` does the rest: data, parameters, checkpoints, metrics.

    >>> class Mean:
    ...     def __init__(self):
    ...         self.weights = {"mean": np.zeros(1, "f4")}
    ...
    ...     def update(self, batch):
    ...         self.weights["mean"][:] = batch["reward"].mean()
    ...         return {"loss": 0.0}
    ...
    ...     def snapshot(self):
    ...         return self.weights
    ...
    ...     def state(self):
    ...         return self.weights
    ...
    ...     def restore(self, arrays):
    ...         self.weights = {name: np.array(array) for name, array in arrays.items()}
    """

    def update(self, batch: Arrays) -> Mapping[str, float]:
        """Learn from a batch; returns numbers to show, such as the loss."""
        ...

    def snapshot(self) -> Arrays:
        """The parameters and statistics that actors need. The next update may change them in place."""
        ...

    def state(self) -> Arrays:
        """Everything that a checkpoint needs to continue exactly."""
        ...

    def restore(self, arrays: Arrays) -> None:
        """Continue from such a state."""
        ...


class ReplayLearner(Learner, Protocol):
    """A learner whose batches are transitions from a replay."""

    @property
    def priorities(self) -> NDArray[np.float32] | None:
        """The new priority of each transition in the latest batch; None for uniform sampling."""
        ...


def join_groups(**groups: Arrays) -> dict[str, NDArray[Any]]:
    """Arrays with their group as a prefix: ``join_groups(adam={"mean": m})`` is ``{"adam/mean": m}``."""
    return {f"{group}/{name}": array for group, arrays in groups.items() for name, array in arrays.items()}


def take_group(arrays: Arrays, name: str) -> dict[str, NDArray[np.generic]]:
    """The arrays of one group, without the prefix."""
    return {
        key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")
    }


def rng_state(rng: np.random.Generator) -> NDArray[np.uint8]:
    """The state of a random number generator, as an array for a checkpoint."""
    return np.frombuffer(json.dumps(rng.bit_generator.state).encode(), np.uint8)


def restore_rng(rng: np.random.Generator, state: NDArray[Any]) -> None:
    """Continue from such a state."""
    rng.bit_generator.state = json.loads(state.tobytes())
