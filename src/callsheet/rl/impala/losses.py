"""IMPALA's loss of some rollouts."""

from __future__ import annotations

import torch
from torch import Tensor

from callsheet.rl.distributions.torch import Categorical, Gaussian
from callsheet.rl.impala.config import Config


def loss(
    distribution: Categorical | Gaussian,
    logp_now: Tensor,
    value: Tensor,
    logp: Tensor,
    advantage: Tensor,
    target: Tensor,
    weight: Tensor,
    config: Config,
) -> Tensor:
    """Policy gradient (or the clipped surrogate), the value function's squared error, and the entropy, all [T, B].
    `weight` is 0 for steps that do not count."""
    if config.clip:
        ratio = (logp_now - logp).exp()
        clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
        policy = -torch.minimum(ratio * advantage, clipped * advantage)
    else:
        policy = -logp_now * advantage
    each = policy + (0.5 * config.value_weight) * (value - target).square()
    if config.entropy:
        each = each - config.entropy * distribution.entropy()
    return (each * weight).sum() / weight.sum().clamp(min=1.0)
