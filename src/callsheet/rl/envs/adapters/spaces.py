"""Gymnasium's spaces as ours: observations become named arrays of floats or bytes; actions are discrete or continuous."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from callsheet.errors import Misconfigured
from callsheet.rl.envs.base import Observations
from callsheet.rl.spaces import Array, Continuous, Discrete, Family, Spaces

SINGLE: Final = "observation"
MASK: Final = "action_mask"
MAX_ONE_HOT: Final = 10_000
"""Discrete observations with more values are not one-hot encoded: they probably mean something else."""

Path = tuple[str | int, ...]


class ObservationPart:
    """One array of an observation: where it is in what the environment returns, and how it is stored."""

    def __init__(self, path: Path, array: Array) -> None:
        self.path = path
        self.name = ".".join(map(str, path)) or SINGLE
        self.array = array
        self.dtype = np.dtype(array.dtype)

    def select(self, observation: Any) -> Any:
        for step in self.path:
            observation = observation[step]
        return observation

    def empty(self, count: int) -> NDArray[Any]:
        return np.empty((count, *self.array.shape), self.dtype)

    def write(self, out: NDArray[Any], index: int, value: Any) -> None:
        """Write one environment's value into its row of an `empty` array."""
        out[index] = value

    def batch(self, values: Any) -> NDArray[Any]:
        """The values of all environments, from a vector environment."""
        return np.asarray(values, self.dtype)


class OneHotPart(ObservationPart):
    """One or several discrete values, one-hot encoded."""

    def __init__(self, path: Path, sizes: NDArray[Any], start: NDArray[Any]) -> None:
        total = int(sizes.sum())
        if total > MAX_ONE_HOT:
            raise Misconfigured(
                f"the observation {'.'.join(map(str, path)) or SINGLE!r} has {total} discrete values; at most "
                f"{MAX_ONE_HOT} can be one-hot encoded",
                fix="use a Box of numbers instead",
            )
        super().__init__(path, Array("float32", (total,), 0.0, 1.0))
        self._shift = np.concatenate([[0], np.cumsum(sizes)[:-1]]) - start
        self._single = int(self._shift[0]) if len(sizes) == 1 else None

    def empty(self, count: int) -> NDArray[Any]:
        return np.zeros((count, *self.array.shape), self.dtype)

    def write(self, out: NDArray[Any], index: int, value: Any) -> None:
        if self._single is not None:
            out[index, int(value) + self._single] = 1
        else:
            out[index, np.ravel(value) + self._shift] = 1

    def batch(self, values: Any) -> NDArray[Any]:
        chosen = np.asarray(values, np.int64)
        chosen = chosen.reshape(len(chosen), -1) + self._shift
        out = np.zeros((len(chosen), *self.array.shape), self.dtype)
        np.put_along_axis(out, chosen, 1, axis=1)
        return out


class SpaceAdapter:
    """Between one environment's spaces and ours."""

    def __init__(self, observations: gym.Space[Any], actions: gym.Space[Any], name: str) -> None:
        self.action, self._shape, self._dtype, self._start = _action(actions, name)
        self._low = self._high = np.zeros(0)
        if isinstance(self.action, Continuous):
            self._low, self._high = np.array(self.action.low), np.array(self.action.high)
        parts = list(_parts(observations, (), name))
        masks = [part for part in parts if part.path == (MASK,) and isinstance(self.action, Discrete)]
        self.mask: ObservationPart | None = masks[0] if masks else None
        self.parts = [part for part in parts if part is not self.mask]
        names = [part.name for part in self.parts]
        if not names:
            raise Misconfigured(
                f"{name} has no observations: its space is {observations}", fix="give it at least one Box"
            )
        if duplicates := {each for each in names if names.count(each) > 1}:
            raise Misconfigured(
                f"{name} has two observations named {sorted(duplicates)[0]!r}",
                fix="rename one of its keys",
            )

    def spaces(self, masks: bool, family: Family) -> Spaces:
        return Spaces({part.name: part.array for part in self.parts}, self.action, masks, family)

    def batch(self, observation: Any) -> Observations:
        return {part.name: part.batch(part.select(observation)) for part in self.parts}

    def actions(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions for a vector environment, in its type and units and within bounds."""
        if isinstance(self.action, Discrete):
            return actions + self._start if self._start else actions
        clipped: NDArray[Any] = np.clip(actions, self._low, self._high).astype(self._dtype, copy=False)
        return clipped.reshape(len(actions), *self._shape)

    def each_action(self, actions: NDArray[Any]) -> Any:
        """The same for single environments, most of which expect plain integers."""
        batch = self.actions(actions)
        return batch.tolist() if isinstance(self.action, Discrete) else batch


def _parts(space: gym.Space[Any], path: Path, name: str) -> Iterator[ObservationPart]:
    match space:
        case gym.spaces.Dict():
            for key, inner in space.spaces.items():
                yield from _parts(inner, (*path, key), name)
        case gym.spaces.Tuple():
            for index, inner in enumerate(space.spaces):
                yield from _parts(inner, (*path, index), name)
        case gym.spaces.Box():
            yield ObservationPart(path, _array(space))
        case gym.spaces.MultiBinary():
            yield ObservationPart(path, Array("float32", tuple(space.shape), 0.0, 1.0))
        case gym.spaces.Discrete():
            yield OneHotPart(path, np.array([space.n]), np.array([space.start]))
        case gym.spaces.MultiDiscrete():
            yield OneHotPart(path, space.nvec.ravel(), space.start.ravel())
        case _:
            where = f" ({'.'.join(map(str, path))})" if path else ""
            raise Misconfigured(
                f"{name} has observations of type {type(space).__name__}{where}, which is not supported",
                fix="wrap it so that it returns Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these",
            )


def _array(space: gym.spaces.Box) -> Array:
    low, high = float(np.min(space.low)), float(np.max(space.high))
    kind = "uint8" if space.dtype == np.uint8 else "float32"
    return Array(
        kind, tuple(space.shape), low if np.isfinite(low) else None, high if np.isfinite(high) else None
    )


def _action(space: gym.Space[Any], name: str) -> tuple[Discrete | Continuous, tuple[int, ...], Any, int]:
    if isinstance(space, gym.spaces.Discrete):
        return Discrete(int(space.n)), (), np.int64, int(space.start)
    if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise Misconfigured(
                f"{name} takes unbounded actions: {space}",
                fix="wrap it with gymnasium.wrappers.RescaleAction, or give its Box finite bounds",
            )
        limits = Continuous(tuple(map(float, space.low.ravel())), tuple(map(float, space.high.ravel())))
        return limits, tuple(space.shape), space.dtype, 0
    raise Misconfigured(
        f"{name} takes actions of type {space}, which is not supported",
        fix="wrap it so that it takes Discrete, or a Box of floating-point numbers",
    )
