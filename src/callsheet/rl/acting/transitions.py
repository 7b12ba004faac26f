"""N-step transitions for a replay, cut from the rollouts of an exploring policy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.acting.policy import Policy
from callsheet.rl.acting.rollouts import Rollouts
from callsheet.rl.envs import Environments
from callsheet.rl.nets.sampling import ActionScaling
from callsheet.rl.returns import n_step
from callsheet.rl.spaces import Continuous, Discrete, Spaces

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]


class TransitionBatch(NamedTuple):
    """What one turn of some environments gave."""

    items: Arrays
    """Transitions along the first axis: `obs.*`, `action`, `reward` (the n-step sum), `discount` (of the next value; 0 after a
    terminated step), `next.*`, and `next_mask` where the environment masks actions."""
    priorities: Floats | None
    """Absolute TD errors by the actor's own values; None for policies without action values."""
    steps: int
    """Valid steps."""
    returns: Floats
    """Of ended episodes in the environments that explore least: the others mostly measure random actions."""
    lengths: NDArray[np.int32]


class Transitions:
    """Environments that continue their episodes from one turn to the next.

    A transition is complete n steps after it began, so the last n steps stay here for the next turn.
    """

    def __init__(
        self,
        environments: Environments,
        policy: Policy,
        seed: int,
        *,
        steps: int,
        n: int,
        gamma: float,
        epsilon: Floats | None = None,
        clip_rewards: bool = False,
    ) -> None:
        self._steps, self._n, self._gamma = steps, n, gamma
        self._values = isinstance(environments.spaces.action, Discrete)
        self._keys = list(environments.spaces.observations)
        self._arrays = _arrays(environments.spaces, steps + n, environments.count)
        self._fresh = {name: array[n:] for name, array in self._arrays.items()}
        self._started = False
        self.exploring = _ExploringRollouts(environments, policy, seed, clip_rewards=clip_rewards)
        self.exploring.epsilon = epsilon
        self._reported = np.arange(environments.count) >= (
            environments.count // 2 if epsilon is not None else 0
        )
        """Environments whose episodes are reported: the half that explores less, if they differ."""

    @property
    def nbytes(self) -> int:
        """Approximate size of one turn's transitions, each with two observations."""
        row: int = self._arrays["action"][0].nbytes
        row += 2 * sum(self._arrays[f"obs.{key}"][0].nbytes for key in self._keys)
        return self._steps * row

    def play(self, *, at_random: bool = False) -> TransitionBatch:
        """Play one turn; `at_random` while there is no trained policy yet."""
        self.exploring.at_random = at_random
        if self._started:
            for array in self._arrays.values():
                array[: self._n] = array[self._steps : self._steps + self._n]
        fresh = self._fresh if self._started else self._arrays
        self._started = True
        valid = self.exploring.fill(fresh)
        ended = (fresh["episode_steps"] > 0) & self._reported
        items, priorities = self._complete()
        return TransitionBatch(
            items, priorities, valid, fresh["episode_return"][ended], fresh["episode_steps"][ended]
        )

    def _complete(self) -> tuple[Arrays, Floats | None]:
        """The transitions that are complete now."""
        rows = self._arrays
        flags = (rows["terminated"], rows["truncated"], rows["valid"])
        returns = n_step(rows["reward"], *flags, gamma=self._gamma, n=self._n)
        start, which = np.nonzero(returns.steps[: self._steps])
        end = start + returns.steps[start, which]
        items: Arrays = {f"obs.{key}": rows[f"obs.{key}"][start, which] for key in self._keys}
        items |= {f"next.{key}": rows[f"obs.{key}"][end, which] for key in self._keys}
        items["action"] = rows["action"][start, which]
        items["reward"] = reward = returns.rewards[start, which]
        items["discount"] = discount = returns.discounts[start, which]
        if "mask" in rows:
            items["next_mask"] = rows["mask"][end, which]
        if not self._values:
            return items, None
        target: Floats = reward + discount * rows["best"][end, which]
        return items, np.abs(target - rows["chosen"][start, which])


class _ExploringRollouts(Rollouts):
    """Rollouts for a replay: random actions at times, and no log-probabilities."""

    epsilon: Floats | None = None
    at_random = False

    def _act(self, out: Arrays, t: int) -> NDArray[np.generic]:
        spaces, masks = self.environments.spaces, self.environments.masks
        if self.at_random and isinstance(spaces.action, Continuous):
            scaling = ActionScaling.of(spaces.action)
            inner = self._rng.uniform(-1.0, 1.0, (self.environments.count, spaces.action.size))
            action: NDArray[np.generic] = (scaling.middle + scaling.half * inner).astype(np.float32)
        else:
            epsilon = 0.0 if self.epsilon is None else self.epsilon
            actions = self._policy.act(
                self._observations,
                self._rng,
                masks=masks,
                epsilon=1.0 if self.at_random else epsilon,
                values=False,
            )
            action = actions.action
            if actions.value is not None and actions.chosen is not None:
                out["best"][t], out["chosen"][t] = actions.value, actions.chosen
        out["action"][t] = action
        return action


def _arrays(spaces: Spaces, steps: int, count: int) -> Arrays:
    shape = (steps, count)
    arrays: Arrays = {
        f"obs.{key}": np.zeros((steps + 1, count, *array.shape), array.dtype)
        for key, array in spaces.observations.items()
    }
    for name, kind in (("reward", "f4"), ("episode_return", "f4"), ("episode_steps", "i4")):
        arrays[name] = np.zeros(shape, kind)
    for name in ("terminated", "truncated", "valid"):
        arrays[name] = np.zeros(shape, "u1")
    arrays["first"] = np.zeros((steps + 1, count), "u1")
    if isinstance(spaces.action, Discrete):
        arrays["action"] = np.zeros(shape, "i8")
        arrays["best"], arrays["chosen"] = np.zeros(shape, "f4"), np.zeros(shape, "f4")
        if spaces.masks:
            arrays["mask"] = np.zeros((steps + 1, count, spaces.action.n), "u1")
    else:
        arrays["action"] = np.zeros((*shape, spaces.action.size), "f4")
    return arrays
