"""Returns and advantages: V-trace, GAE and n-step returns in NumPy; `returns.torch` has V-trace for tensors.

All take arrays [T, B] of one rollout and treat the end of episodes alike: after a *terminated* step nothing follows; after a
*truncated* one, the value of the next observation is used. A step that is not *valid* contributes nothing: its target is
its own value, its advantage is 0, and no trace passes through it.

The recursion over time is not a loop. ``a[t] = d[t] + g[t] a[t+1]`` is associative, so it takes log2(T) rounds over
whole arrays, which is several times faster than T rounds over single rows for 32 to 128 steps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Flags = NDArray[np.generic]


class Targets(NamedTuple):
    """For each step, [T, B]."""

    values: Floats
    """Target of the observation's value."""
    advantages: Floats
    """How much better the action was than the policy's average."""


def discounted(deltas: Floats, factors: Floats) -> Floats:
    """``a[t] = deltas[t] + factors[t] * a[t + 1]``, with nothing after the last step."""
    sums = deltas.copy()
    reach = 1
    while reach < len(sums):
        # Each row holds the sum of its next `reach` steps; every round doubles that.
        sums[:-reach] += factors[: len(sums) - reach] * sums[reach:]
        factors = factors[:-reach] * factors[reach:]
        reach *= 2
    return sums


def gae(
    rewards: Floats,
    values: Floats,
    terminated: Flags,
    truncated: Flags,
    valid: Flags,
    *,
    gamma: float,
    lam: float,
) -> Targets:
    """Generalized advantage estimation. `values` is [T+1, B], including the last observation."""
    alive, through, counts = _flags(terminated, truncated, valid)
    deltas = np.where(counts, rewards + np.float32(gamma) * alive * values[1:] - values[:-1], np.float32(0))
    advantages = discounted(deltas, np.float32(gamma * lam) * through)
    return Targets(advantages + values[:-1], advantages)


def vtrace(
    log_ratios: Floats,
    rewards: Floats,
    values: Floats,
    terminated: Flags,
    truncated: Flags,
    valid: Flags,
    *,
    gamma: float,
    lam: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
    advantage_clip: float = 1.0,
) -> Targets:
    """V-trace: targets for the current policy from steps of an older one.

    `log_ratios` [T, B] is the log-probability of the action now minus that of then; `values` is [T+1, B].
    """
    alive, through, counts = _flags(terminated, truncated, valid)
    # Clip before the exponential, which could overflow.
    ratios = np.exp(np.minimum(log_ratios, np.float32(np.log(max(rho_clip, c_clip, advantage_clip)))))
    discounts = np.float32(gamma) * alive
    ratios = np.where(counts, ratios, np.float32(0))
    advantages = np.where(counts, rewards + discounts * values[1:] - values[:-1], np.float32(0))
    traces = np.minimum(ratios, np.float32(c_clip)) * np.float32(gamma * lam) * through
    excess = discounted(advantages * np.minimum(ratios, np.float32(rho_clip)), traces)
    # Advantages use the target of the next observation, not its value.
    advantages[:-1] += np.float32(gamma) * through[:-1] * excess[1:]
    advantages *= np.minimum(ratios, np.float32(advantage_clip))
    return Targets(excess + values[:-1], advantages)


class Steps(NamedTuple):
    """For each step, [T, B]: the rewards of at most n steps, and where to bootstrap."""

    rewards: Floats
    """Discounted sum."""
    steps: NDArray[np.int64]
    """How many were summed: bootstrap from ``obs[t + steps]``. 0 where the step is not valid."""
    discounts: Floats
    """Factor of that value: 0 after a terminated step."""


def n_step(
    rewards: Floats, terminated: Flags, truncated: Flags, valid: Flags, *, gamma: float, n: int
) -> Steps:
    """N-step returns, over fewer steps where an episode, the valid steps or the rollout ends."""
    length = len(rewards)
    ended = (terminated != 0) | (truncated != 0)
    going = valid != 0
    sums = np.zeros(rewards.shape, np.float32)
    steps = np.zeros(rewards.shape, np.int64)
    discounts = np.ones(rewards.shape, np.float32)
    for ahead in range(min(n, length)):
        here, there = slice(None, length - ahead), slice(ahead, None)
        going = going[here] & (valid[there] != 0)
        sums[here] += np.where(going, np.float32(gamma**ahead) * rewards[there], np.float32(0))
        steps[here] += going
        discounts[here] *= np.where(going, np.float32(gamma) * (terminated[there] == 0), np.float32(1))
        going &= ~ended[there]
    return Steps(sums, steps, discounts)


def _flags(terminated: Flags, truncated: Flags, valid: Flags) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Whether something follows a step and whether a trace passes through it, both as numbers; whether it is valid."""
    counts = valid != 0
    alive = (terminated == 0).astype(np.float32)
    return alive, alive * (truncated == 0) * counts, counts
