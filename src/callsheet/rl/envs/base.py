"""The interface of environments: many at once, stepped together, reset automatically."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from callsheet.rl.spaces import Spaces

RGB = "rgb_array"
Observations = dict[str, NDArray[Any]]
"""Name -> `[B, ...]`. A single observation is named `observation`."""


class EnvRequest(msgspec.Struct, frozen=True):
    """Which environments to make."""

    env: str
    count: int
    seed: int
    options: dict[str, Any] = {}
    render_mode: str | None = None
    first: int = 0
    """Index of the first one among the environments of all workers. Seeds follow the index."""


@dataclass(slots=True)
class Step:
    """The result of one step of B environments.

    When a step ends an episode, its observation is the last one of that episode. The next step ignores its action, has reward
    0 and `valid` False, and returns the first observation of the next episode.
    """

    observations: Observations
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    """The episode ended."""
    truncated: NDArray[np.bool_]
    """The episode was cut off, for example by a time limit; never together with `terminated`."""
    valid: NDArray[np.bool_]
    """False where the action was ignored because a new episode started."""
    first: NDArray[np.bool_]
    """The observation is the first of an episode."""
    broken: NDArray[np.bool_]
    """The simulator died or hung. The observation is of a new episode; the previous one never ended."""
    masks: NDArray[np.uint8] | None = None
    """`[B, n]`, 1 where the action is allowed; None for environments without masks."""


class Environments(Protocol):
    """B environments that are stepped together. The caller owns the returned arrays."""

    @property
    def spaces(self) -> Spaces: ...
    @property
    def count(self) -> int: ...
    @property
    def restarts(self) -> int:
        """How often a simulator was restarted."""
        ...

    @property
    def masks(self) -> NDArray[np.uint8] | None:
        """The allowed actions for the latest observations."""
        ...

    def reset(self, seed: int | None = None) -> Observations:
        """Start new episodes everywhere. With a seed, everything after depends only on it; without one, the random numbers
        continue (at first from the seed given to `make`)."""
        ...

    def step(self, actions: NDArray[Any]) -> Step:
        """`[B]` integers or `[B, A]` numbers in the environment's units, which are clipped to its bounds."""
        ...

    def frame(self) -> NDArray[np.uint8]:
        """Render the first environment as `[height, width, 3]`; needs `render_mode="rgb_array"`."""
        ...

    def close(self) -> None: ...


def seed_of(*parts: int) -> int:
    """Derive a seed from several numbers. Neighbors give unrelated seeds, and there is room to count up from it."""
    return int(np.random.SeedSequence([abs(part) for part in parts]).generate_state(1)[0] >> 2)


def available_cores() -> int:
    """Cores this process may use: `OMP_NUM_THREADS`, which follows the role's CPU request, or what the system allows."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if threads.isdecimal() and int(threads):
        return int(threads)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
