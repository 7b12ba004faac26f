"""What every kind of environment gives: many at once, stepped together, each beginning anew by itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.spaces import Spaces

Observations = dict[str, NDArray[Any]]
"""Name -> `[B, ...]`. A plain observation is called `observation`."""


@dataclass(slots=True)
class Step:
    """What one step of B environments led to.

    When a step ends an episode, its observation is the last one of that episode. The step after ignores its action, has
    the reward 0 and `valid` False, and leads to the first observation of the next episode.
    """

    observations: Observations
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    """The episode has come to its end."""
    truncated: NDArray[np.bool_]
    """The episode was cut short, by a limit of time for instance; never together with `terminated`."""
    valid: NDArray[np.bool_]
    """False where the action was ignored, because the environment began a new episode."""
    first: NDArray[np.bool_]
    """The observation is the first of an episode."""
    broken: NDArray[np.bool_]
    """The simulator died or hung: the observation is of a new episode, and the one before never ended."""
    masks: NDArray[np.uint8] | None = None
    """`[B, n]`, 1 where the action is allowed; None for environments that do not say."""


class Environments(Protocol):
    """B environments that are stepped together. Arrays that it gives are the caller's to keep."""

    @property
    def spaces(self) -> Spaces: ...
    @property
    def count(self) -> int: ...
    @property
    def restarts(self) -> int:
        """How often a simulator was started again."""
        ...

    @property
    def masks(self) -> NDArray[np.uint8] | None:
        """The allowed actions for the latest observations."""
        ...

    def reset(self, seed: int | None = None) -> Observations:
        """Begin anew everywhere. With a seed, all that follows depends on it alone; without one, chance goes on (the
        first time: from the seed given to `make`)."""
        ...

    def step(self, actions: NDArray[Any]) -> Step:
        """`[B]` integers or `[B, A]` numbers, in the environment's own units; those out of bounds are clipped."""
        ...

    def frame(self) -> NDArray[np.uint8]:
        """A picture `[height, width, 3]` of the first environment; needs `render_mode="rgb_array"`."""
        ...

    def close(self) -> None: ...


def seed_of(*parts: int) -> int:
    """A seed made of several numbers, such that neighbors have nothing in common; room is left to count on from it."""
    return int(np.random.SeedSequence([abs(part) for part in parts]).generate_state(1)[0] >> 2)


def processors() -> int:
    """What the role was given (`OMP_NUM_THREADS`, which follows its request), else what the system allows."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdecimal() and int(told):
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
