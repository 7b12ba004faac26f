"""Whole episodes, played to judge a policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from callsheet.rl.acting.policy import Policy
from callsheet.rl.envs import Environments
from callsheet.rl.settings import Evaluation


@dataclass(frozen=True)
class Played:
    """What some episodes brought."""

    returns: list[float]
    steps: list[int]
    cut: int = 0
    """How many of them were cut short because they took too long; their returns are those up to there."""

    @property
    def mean(self) -> float:
        """Of the returns."""
        return float(np.mean(self.returns))


def play(
    environments: Environments,
    policy: Policy,
    episodes: int,
    *,
    seed: int,
    greedy: bool = True,
    longest: int = Evaluation().longest,
) -> Played:
    """So many episodes. Each environment plays its share: taking those that end first would favor short ones. One that
    is in the same episode after `longest` steps waits until all begin anew, for those who wait."""
    count = environments.count
    share = np.full(count, episodes // count)
    share[: episodes % count] += 1
    rng = np.random.default_rng(seed)
    observations = environments.reset(seed)
    first = np.ones(count, np.uint8)
    state = np.zeros((count, policy.state_size), np.float32) if policy.state_size else None
    running, length = np.zeros(count), np.zeros(count, int)
    cut, waiting = 0, np.zeros(count, bool)
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
        ended = step.terminated | step.truncated
        late = (length >= longest) & ~ended & ~waiting & (share > 0)
        cut += int(late.sum())
        for one in np.flatnonzero(ended | late):
            if share[one] and not waiting[one]:
                share[one] -= 1
                returns[one].append(float(running[one]))
                steps[one].append(int(length[one]))
            running[one] = length[one] = 0
        waiting = (waiting | late) & ~ended
        if share[waiting].any() and not share[~waiting].any():
            observations, first = environments.reset(), np.ones(count, np.uint8)
            waiting[:], running[:], length[:] = False, 0, 0
    return Played([x for some in returns for x in some], [x for some in steps for x in some], cut)
