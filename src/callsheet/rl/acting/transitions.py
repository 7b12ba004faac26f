"""Transitions for a replay: from an observation over a few steps to another, with the rewards in between."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.acting.policy import Policy
from callsheet.rl.acting.rollouts import Rollouts
from callsheet.rl.distributions.scaling import Scaling
from callsheet.rl.envs import Environments
from callsheet.rl.returns import n_step
from callsheet.rl.spaces import Continuous, Discrete, Spaces

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float32]


class Played(NamedTuple):
    """What some steps of some environments brought."""

    items: Arrays
    """Transitions along the first axis: `obs.*`, `action`, `reward` (the sum), `discount` (of what follows; 0 where
    nothing does), `next.*`, and `next_mask` where the environment masks actions."""
    priorities: Floats | None
    """How wrong the actor's own values were about each; None for policies that do not value actions."""
    steps: int
    """How many steps count."""
    returns: Floats
    """Of the episodes that ended, in environments that explore little: those of the others tell of their silly actions."""
    lengths: NDArray[np.int32]


def epsilons(largest: float, spread: float, *, actor: int, actors: int, count: int) -> Floats:
    """Shares of random actions for the environments of one actor, as in Ape-X: over all environments of all actors
    they go from `largest` down to its power of 1 + `spread`. One that is alone has the middle of that.

    Every actor has bold ones and calm ones, so that both stay when actors come and go."""
    everyone = actors * count
    number = np.arange(count) * actors + actor % actors
    power = 1.0 + spread * (number / (everyone - 1) if everyone > 1 else np.full(1, 0.5))
    found: Floats = np.power(largest, power).astype(np.float32)
    return found


class Transitions:
    """Environments in the middle of their episodes, and who plays them.

    A transition is known n steps after it began, so the last n steps stay here for the next turn.
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
        signs: bool = False,
    ) -> None:
        self._steps, self._n, self._gamma = steps, n, gamma
        self._values = isinstance(environments.spaces.action, Discrete)
        self._keys = list(environments.spaces.observations)
        self._arrays = _arrays(environments.spaces, steps + n, environments.count)
        self._fresh = {name: array[n:] for name, array in self._arrays.items()}
        self._begun = False
        self.exploring = _Exploring(environments, policy, seed, signs=signs)
        self.exploring.epsilon = epsilon
        self._told = np.arange(environments.count) >= (environments.count // 2 if epsilon is not None else 0)
        """Whose episodes are told of: the half that explores less, where chances differ."""

    @property
    def nbytes(self) -> int:
        """Of the transitions of one turn, about: each has two observations."""
        row: int = self._arrays["action"][0].nbytes
        row += 2 * sum(self._arrays[f"obs.{key}"][0].nbytes for key in self._keys)
        return self._steps * row

    def play(self, *, at_random: bool = False) -> Played:
        """So many steps of each environment; `at_random` before there is a policy worth playing."""
        self.exploring.at_random = at_random
        if self._begun:
            for array in self._arrays.values():
                array[: self._n] = array[self._steps : self._steps + self._n]
        fresh = self._fresh if self._begun else self._arrays
        self._begun = True
        counted = self.exploring.fill(fresh)
        ended = (fresh["episode_steps"] > 0) & self._told
        items, priorities = self._cut()
        return Played(
            items, priorities, counted, fresh["episode_return"][ended], fresh["episode_steps"][ended]
        )

    def _cut(self) -> tuple[Arrays, Floats | None]:
        """The transitions that began in the first steps and are known now."""
        rows = self._arrays
        flags = (rows["terminated"], rows["truncated"], rows["valid"])
        found = n_step(rows["reward"], *flags, gamma=self._gamma, n=self._n)
        start, which = np.nonzero(found.steps[: self._steps])
        end = start + found.steps[start, which]
        items: Arrays = {f"obs.{key}": rows[f"obs.{key}"][start, which] for key in self._keys}
        items |= {f"next.{key}": rows[f"obs.{key}"][end, which] for key in self._keys}
        items["action"] = rows["action"][start, which]
        items["reward"] = reward = found.rewards[start, which]
        items["discount"] = discount = found.discounts[start, which]
        if "mask" in rows:
            items["next_mask"] = rows["mask"][end, which]
        if not self._values:
            return items, None
        hoped: Floats = reward + discount * rows["best"][end, which]
        return items, np.abs(hoped - rows["chosen"][start, which])


class _Exploring(Rollouts):
    """Plays as a learner from a replay wants it: actions need no probabilities, but must sometimes be random."""

    epsilon: Floats | None = None
    at_random = False

    def _act(self, out: Arrays, t: int) -> NDArray[np.generic]:
        spaces, masks = self.environments.spaces, self.environments.masks
        if self.at_random and isinstance(spaces.action, Continuous):
            scaling = Scaling.of(spaces.action)
            inner = self._rng.uniform(-1.0, 1.0, (self.environments.count, spaces.action.size))
            action: NDArray[np.generic] = (scaling.middle + scaling.half * inner).astype(np.float32)
        else:
            chance = 0.0 if self.epsilon is None else self.epsilon
            acted = self._policy.act(
                self._observations,
                self._rng,
                masks=masks,
                epsilon=1.0 if self.at_random else chance,
                values=False,
            )
            action = acted.action
            if acted.value is not None and acted.chosen is not None:
                out["best"][t], out["chosen"][t] = acted.value, acted.chosen
        out["action"][t] = action
        return action


def _arrays(spaces: Spaces, steps: int, count: int) -> Arrays:
    shape = (steps, count)
    found: Arrays = {
        f"obs.{key}": np.zeros((steps + 1, count, *array.shape), array.dtype)
        for key, array in spaces.observations.items()
    }
    for name, kind in (("reward", "f4"), ("episode_return", "f4"), ("episode_steps", "i4")):
        found[name] = np.zeros(shape, kind)
    for name in ("terminated", "truncated", "valid"):
        found[name] = np.zeros(shape, "u1")
    found["first"] = np.zeros((steps + 1, count), "u1")
    if isinstance(spaces.action, Discrete):
        found["action"] = np.zeros(shape, "i8")
        found["best"], found["chosen"] = np.zeros(shape, "f4"), np.zeros(shape, "f4")
        if spaces.masks:
            found["mask"] = np.zeros((steps + 1, count, spaces.action.n), "u1")
    else:
        found["action"] = np.zeros((*shape, spaces.action.size), "f4")
    return found
