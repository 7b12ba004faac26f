"""What a learner is: the narrow door through which any framework's algorithm takes part."""

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
        """Learn from a batch; numbers worth showing, such as the loss."""
        ...

    def snapshot(self) -> Arrays:
        """What actors need: the policy's parameters and its statistics. It may change with the next update."""
        ...

    def state(self) -> Arrays:
        """All that a checkpoint needs to go on as if nothing had happened."""
        ...

    def restore(self, arrays: Arrays) -> None:
        """Go on from such a state."""
        ...


class ReplayLearner(Learner, Protocol):
    """A learner whose batches are transitions from a replay."""

    @property
    def priorities(self) -> NDArray[np.float32] | None:
        """After an update: how much each transition of its batch is worth seeing again; None: all the same."""
        ...


def flat(**groups: Arrays) -> dict[str, NDArray[Any]]:
    """Groups of arrays under one roof: ``flat(adam={"mean": m})`` is ``{"adam/mean": m}``."""
    return {f"{group}/{name}": array for group, arrays in groups.items() for name, array in arrays.items()}


def group(arrays: Arrays, name: str) -> dict[str, NDArray[np.generic]]:
    """One of the groups again."""
    return {
        key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")
    }


def pack(chance: np.random.Generator) -> NDArray[np.uint8]:
    """Where a source of chance is, as an array for a checkpoint."""
    return np.frombuffer(json.dumps(chance.bit_generator.state).encode(), np.uint8)


def unpack(chance: np.random.Generator, packed: NDArray[Any]) -> None:
    """Go on from there."""
    chance.bit_generator.state = json.loads(packed.tobytes())
