"""Play whole episodes to evaluate a policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from callsheet.rl.acting.policy import Policy
from callsheet.rl.envs import Environments
from callsheet.rl.settings import Evaluation


@dataclass(frozen=True)
class EpisodeResults:
    """Returns and lengths of some episodes."""

    returns: list[float]
    steps: list[int]
    cut: int = 0
    """How many were cut off at the step limit; their returns count up to there."""

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))


def play(
    environments: Environments,
    policy: Policy,
    episodes: int,
    *,
    seed: int,
    greedy: bool = True,
    longest: int = Evaluation().longest,
) -> EpisodeResults:
    """Play this many episodes. Each environment plays its share, because taking the first to end would favor short ones. An
    environment that reaches `longest` steps pauses; all are reset once only paused ones have episodes left."""
    count = environments.count
    share = np.full(count, episodes // count)
    share[: episodes % count] += 1
    rng = np.random.default_rng(seed)
    observations = environments.reset(seed)
    first = np.ones(count, np.uint8)
    state = np.zeros((count, policy.state_size), np.float32) if policy.state_size else None
    running, length = np.zeros(count), np.zeros(count, int)
    cut, paused = 0, np.zeros(count, bool)
    returns: list[list[float]] = [[] for _ in range(count)]
    steps: list[list[int]] = [[] for _ in range(count)]
    while share.any():
        actions = policy.act(
            observations,
            rng,
            greedy=greedy,
            masks=environments.masks,
            values=False,
            state=state,
            first=first,
        )
        state = actions.state
        step = environments.step(actions.action)
        observations, first = step.observations, step.first.view(np.uint8)
        running += step.rewards
        length += step.valid
        running[step.broken] = 0
        length[step.broken] = 0
        ended = step.terminated | step.truncated
        late = (length >= longest) & ~ended & ~paused & (share > 0)
        cut += int(late.sum())
        for one in np.flatnonzero(ended | late):
            if share[one] and not paused[one]:
                share[one] -= 1
                returns[one].append(float(running[one]))
                steps[one].append(int(length[one]))
            running[one] = length[one] = 0
        paused = (paused | late) & ~ended
        if share[paused].any() and not share[~paused].any():
            observations, first = environments.reset(), np.ones(count, np.uint8)
            paused[:], running[:], length[:] = False, 0, 0
    return EpisodeResults([x for some in returns for x in some], [x for some in steps for x in some], cut)
