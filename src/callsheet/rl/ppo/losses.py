"""PPO's loss of one minibatch."""

from __future__ import annotations

from torch import Tensor

from callsheet.rl.distributions.torch import Categorical, Gaussian
from callsheet.rl.ppo.config import Config


def loss(
    distribution: Categorical | Gaussian,
    value: Tensor,
    action: Tensor,
    logp: Tensor,
    advantage: Tensor,
    target: Tensor,
    weight: Tensor | None,
    config: Config,
) -> Tensor:
    """The clipped surrogate, the value function's squared error, and the entropy. `weight` is 0 for steps that do not
    count; None: all do."""
    ratio = (distribution.log_prob(action) - logp).exp()
    clipped = ratio.clamp(1.0 - config.clip, 1.0 + config.clip)
    policy = -(ratio * advantage).minimum(clipped * advantage)
    each = policy + (0.5 * config.value_weight) * (value - target).square()
    if config.entropy:
        each = each - config.entropy * distribution.entropy()
    if weight is None:
        return each.mean()
    return (each * weight).sum() / weight.sum().clamp(min=1.0)
