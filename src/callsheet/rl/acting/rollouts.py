"""Rollouts: a policy steps environments and writes straight into the arrays that are sent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.acting.policy import Policy
from callsheet.rl.envs import Environments
from callsheet.rl.spaces import Discrete, Spaces
from callsheet.runtime import Schema

Arrays = dict[str, NDArray[np.generic]]


def schema(spaces: Spaces, steps: int, count: int, *, state: int = 0, values: bool = False) -> Schema:
    """The schema of a rollout of `steps` steps in `count` environments. Observations have one more row: the result of the last
    action."""
    shape = (steps, count)
    arrays: Arrays = {
        f"obs.{key}": np.empty((steps + 1, count, *array.shape), array.dtype)
        for key, array in spaces.observations.items()
    }
    if isinstance(spaces.action, Discrete):
        arrays["action"] = np.empty(shape, "i8")
    else:
        arrays["action"] = np.empty((*shape, spaces.action.size), "f4")
    for name, kind in (("reward", "f4"), ("logp", "f4"), ("episode_return", "f4"), ("episode_steps", "i4")):
        arrays[name] = np.empty(shape, kind)
    for name in ("terminated", "truncated", "valid"):
        arrays[name] = np.empty(shape, "u1")
    arrays["first"] = np.empty((steps + 1, count), "u1")
    if values:
        arrays["value"] = np.empty(shape, "f4")
    if spaces.masks and isinstance(spaces.action, Discrete):
        arrays["mask"] = np.empty((steps + 1, count, spaces.action.n), "u1")
    if state:
        arrays["state"] = np.empty((count, state), "f4")
    return Schema.of(arrays)


def axes(names: list[str]) -> dict[str, int]:
    """The axis of the environments in each array, along which rollouts of several actors are joined."""
    return {name: 0 if name == "state" else 1 for name in names}


class Rollouts:
    """Environments that continue their episodes from one rollout to the next."""

    def __init__(
        self, environments: Environments, policy: Policy, seed: int, *, clip_rewards: bool = False
    ) -> None:
        """`clip_rewards` replaces rewards by their signs; episode returns still use the true rewards."""
        self._clip_rewards = clip_rewards
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
        """Episodes dropped because their simulator died."""

    def fill(self, out: Arrays) -> int:
        """Fill the arrays with steps; returns how many are valid."""
        steps = len(out["reward"])
        out["episode_return"][:] = np.nan
        out["episode_steps"][:] = 0
        if self._state is not None:
            out["state"][:] = self._state
        for t in range(steps):
            self._write_observation(out, t)
            self._step(out, t, self._act(out, t))
        self._write_observation(out, steps)
        return int(out["valid"].sum())

    def _act(self, out: Arrays, t: int) -> NDArray[np.generic]:
        values = "value" in out
        actions = self._policy.act(
            self._observations,
            self._rng,
            masks=self.environments.masks,
            values=values,
            state=self._state,
            first=self._first,
        )
        assert actions.logp is not None
        out["action"][t] = actions.action
        out["logp"][t] = actions.logp
        if values and actions.value is not None:
            out["value"][t] = actions.value
        self._state = actions.state
        return actions.action

    def _write_observation(self, out: Arrays, t: int) -> None:
        for key, observation in self._observations.items():
            out[f"obs.{key}"][t] = observation
        out["first"][t] = self._first
        masks = self.environments.masks
        if masks is not None:
            out["mask"][t] = masks

    def _step(self, out: Arrays, t: int, action: NDArray[np.generic]) -> None:
        step = self.environments.step(action)
        out["reward"][t] = np.sign(step.rewards) if self._clip_rewards else step.rewards
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
            self._discard(out, t, np.flatnonzero(step.broken))

    def _discard(self, out: Arrays, t: int, which: NDArray[np.intp]) -> None:
        """Discard the steps and the return of episodes whose simulator died."""
        self.broken += len(which)
        for one in which:
            starts = np.flatnonzero(out["first"][: t + 1, one])
            out["valid"][starts[-1] if len(starts) else 0 : t + 1, one] = 0
            self._returns[one] = 0
            self._steps[one] = 0
