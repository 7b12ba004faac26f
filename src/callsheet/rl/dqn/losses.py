"""DQN's targets and loss, as functions of what the networks say."""

from __future__ import annotations

import torch
from torch import Tensor

from callsheet.rl.distributions.scaling import MASKED


def targets(reward: Tensor, discount: Tensor, online: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """What the value of each action taken should be, [B]. The online network chooses the next action and the target
    network says its value (double Q-learning): one network would believe its own errors. `online` and `target` are
    [B, n], of the observation that was reached; `discount` is 0 where nothing follows."""
    if mask is not None:
        online = online.masked_fill(mask == 0, MASKED)
    best = online.argmax(-1, keepdim=True)
    return reward + discount * target.gather(-1, best).squeeze(-1)


def errors(values: Tensor, action: Tensor, target: Tensor) -> Tensor:
    """How far the values [B, n] of the actions taken are from their targets."""
    return values.gather(-1, action.unsqueeze(-1)).squeeze(-1) - target


def loss(error: Tensor, weight: Tensor) -> Tensor:
    """Huber's: squared near 0, straight beyond 1. `weight` undoes what priorities did to the chances."""
    size = error.abs()
    each = torch.where(size <= 1.0, 0.5 * error.square(), size - 0.5)
    return (weight * each).mean()
