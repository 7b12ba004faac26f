"""SAC's losses, as functions of what policy and critics say. Critics' values are [2, B], all else is [B]."""

from __future__ import annotations

from torch import Tensor


def targets(
    reward: Tensor, discount: Tensor, values: Tensor, logp: Tensor, temperature: float | Tensor
) -> Tensor:
    """What the value of each action taken should be: of the target critics the one that hopes for less, and a bonus for
    the randomness of the policy's next action. `discount` is 0 where nothing follows."""
    return reward + discount * (values.amin(0) - temperature * logp)


def critic_loss(values: Tensor, target: Tensor) -> Tensor:
    """Half the mean squared error, of both critics together."""
    return (values - target).square().sum() * (0.5 / values.shape[1])


def critic_slope(values: Tensor, target: Tensor) -> Tensor:
    """Of `critic_loss`, over the values."""
    return (values - target) / values.shape[1]


def policy_loss(values: Tensor, logp: Tensor, temperature: float | Tensor) -> Tensor:
    """The policy's own actions should have a high value, and be random where that costs little."""
    return (temperature * logp - values.amin(0)).mean()


def temperature_loss(log_temperature: Tensor, logp: Tensor, target_entropy: float) -> Tensor:
    """Grows the temperature while the policy is less random than it should be."""
    return -log_temperature * (logp.detach().mean() + target_entropy)
