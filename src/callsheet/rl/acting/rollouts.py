"""Rollouts: a policy plays some environments for a number of steps, straight into the arrays that are sent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.acting.policy import Policy
from callsheet.rl.envs import Environments
from callsheet.rl.spaces import Discrete, Spaces
from callsheet.runtime import Schema

Arrays = dict[str, NDArray[np.generic]]


def schema(spaces: Spaces, steps: int, count: int, *, state: int = 0, values: bool = False) -> Schema:
    """What a rollout of so many steps of so many environments looks like. Observations have one row more: what the
    last action led to."""
    shape = (steps, count)
    found: Arrays = {
        f"obs.{key}": np.empty((steps + 1, count, *array.shape), array.dtype)
        for key, array in spaces.observations.items()
    }
    if isinstance(spaces.action, Discrete):
        found["action"] = np.empty(shape, "i8")
    else:
        found["action"] = np.empty((*shape, spaces.action.size), "f4")
    for name, kind in (("reward", "f4"), ("logp", "f4"), ("episode_return", "f4"), ("episode_steps", "i4")):
        found[name] = np.empty(shape, kind)
    for name in ("terminated", "truncated", "valid"):
        found[name] = np.empty(shape, "u1")
    found["first"] = np.empty((steps + 1, count), "u1")
    if values:
        found["value"] = np.empty(shape, "f4")
    if spaces.masks and isinstance(spaces.action, Discrete):
        found["mask"] = np.empty((steps + 1, count, spaces.action.n), "u1")
    if state:
        found["state"] = np.empty((count, state), "f4")
    return Schema.of(found)


def axes(names: list[str]) -> dict[str, int]:
    """Along which axis rollouts of several actors are joined: that of the environments."""
    return {name: 0 if name == "state" else 1 for name in names}


class Rollouts:
    """Environments in the middle of their episodes, and who plays them."""

    def __init__(self, environments: Environments, policy: Policy, seed: int, *, signs: bool = False) -> None:
        """`signs`: of rewards only their signs are handed on; the returns of episodes are those of the true ones."""
        self._signs = signs
        self.environments = environments
        self._policy = policy
        self._rng = np.random.default_rng(seed)
        self._observations = environments.reset()
        count = environments.count
        self._first = np.ones(count, np.uint8)
        self._returns = np.zeros(count, np.float32)
        self._steps = np.zeros(count, np.int32)
        self._state = np.zeros((count, policy.state_size), np.float32) if policy.state_size else None
        self.episodes = 0
        self.broken = 0
        """Episodes that were dropped because their simulator died."""

    def fill(self, out: Arrays) -> int:
        """Play as many steps as the arrays have; how many of them count."""
        steps = len(out["reward"])
        out["episode_return"][:] = np.nan
        out["episode_steps"][:] = 0
        if self._state is not None:
            out["state"][:] = self._state
        for t in range(steps):
            self._note(out, t)
            self._step(out, t, self._act(out, t))
        self._note(out, steps)
        return int(out["valid"].sum())

    def _act(self, out: Arrays, t: int) -> NDArray[np.generic]:
        values = "value" in out
        acted = self._policy.act(
            self._observations,
            self._rng,
            masks=self.environments.masks,
            values=values,
            state=self._state,
            first=self._first,
        )
        assert acted.logp is not None
        out["action"][t] = acted.action
        out["logp"][t] = acted.logp
        if values and acted.value is not None:
            out["value"][t] = acted.value
        self._state = acted.state
        return acted.action

    def _note(self, out: Arrays, t: int) -> None:
        for key, observation in self._observations.items():
            out[f"obs.{key}"][t] = observation
        out["first"][t] = self._first
        masks = self.environments.masks
        if masks is not None:
            out["mask"][t] = masks

    def _step(self, out: Arrays, t: int, action: NDArray[np.generic]) -> None:
        step = self.environments.step(action)
        out["reward"][t] = np.sign(step.rewards) if self._signs else step.rewards
        out["terminated"][t] = step.terminated
        out["truncated"][t] = step.truncated
        out["valid"][t] = step.valid
        self._observations, self._first = step.observations, step.first.view(np.uint8)
        self._returns += step.rewards
        self._steps += step.valid
        ended = step.terminated | step.truncated
        if ended.any():
            self.episodes += int(ended.sum())
            out["episode_return"][t][ended] = self._returns[ended]
            out["episode_steps"][t][ended] = self._steps[ended]
            self._returns[ended] = 0
            self._steps[ended] = 0
        if step.broken.any():
            self._drop(out, t, np.flatnonzero(step.broken))

    def _drop(self, out: Arrays, t: int, which: NDArray[np.intp]) -> None:
        """An episode that its simulator's death cut off does not count: neither its return nor its steps so far."""
        self.broken += len(which)
        for one in which:
            begun = np.flatnonzero(out["first"][: t + 1, one])
            out["valid"][begun[-1] if len(begun) else 0 : t + 1, one] = 0
            self._returns[one] = 0
            self._steps[one] = 0
