"""Whole episodes, played to judge a policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from callsheet.rl.acting.policies import Policy
from callsheet.rl.envs import Environments


@dataclass(frozen=True)
class Played:
    """What some episodes brought."""

    returns: list[float]
    steps: list[int]

    @property
    def mean(self) -> float:
        """Of the returns."""
        return float(np.mean(self.returns))


def play(
    environments: Environments, policy: Policy, episodes: int, *, seed: int, greedy: bool = True
) -> Played:
    """So many episodes. Each environment plays its share: taking those that end first would favour short ones."""
    count = environments.count
    share = np.full(count, episodes // count)
    share[: episodes % count] += 1
    rng = np.random.default_rng(seed)
    observations = environments.reset(seed)
    first = np.ones(count, np.uint8)
    state = np.zeros((count, policy.state_size), np.float32) if policy.state_size else None
    running, length = np.zeros(count), np.zeros(count, int)
    returns: list[list[float]] = [[] for _ in range(count)]
    steps: list[list[int]] = [[] for _ in range(count)]
    while share.any():
        acted = policy.act(
            observations,
            rng,
            greedy=greedy,
            masks=environments.masks,
            values=False,
            state=state,
            first=first,
        )
        state = acted.state
        step = environments.step(acted.action)
        observations, first = step.observations, step.first.view(np.uint8)
        running += step.rewards
        length += step.valid
        running[step.broken] = 0
        length[step.broken] = 0
        for one in np.flatnonzero(step.terminated | step.truncated):
            if share[one]:
                share[one] -= 1
                returns[one].append(float(running[one]))
                steps[one].append(int(length[one]))
            running[one] = length[one] = 0
    return Played([x for some in returns for x in some], [x for some in steps for x in some])
