"""Distributions over actions in PyTorch: as few operations as the numbers allow, for losses of small networks.

The last axis holds the actions (or the numbers of one action); all others are batches. The checks and the broadcasting
of `torch.distributions` cost more than a small network's forward pass; the tests compare the numbers with theirs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from callsheet.rl.distributions.scaling import HALF_LOG_TAU, LEAST_LOG_STD, MASKED, MOST_LOG_STD


class Categorical:
    """A choice among a finite number of actions. Where a mask is 0 the action has probability 0."""

    def __init__(self, logits: Tensor, masks: Tensor | None = None) -> None:
        if masks is not None:
            logits = logits.masked_fill(masks == 0, MASKED)
        self.log_probs = torch.log_softmax(logits, dim=-1)

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        flat = self.log_probs.exp().reshape(-1, self.log_probs.shape[-1])
        return torch.multinomial(flat, 1, generator=generator).view(self.log_probs.shape[:-1])

    def mode(self) -> Tensor:
        return self.log_probs.argmax(-1)


@dataclass(frozen=True, slots=True)
class Scale:
    """`Scaling` as tensors on a device."""

    middle: Tensor
    half: Tensor
    trivial: bool

    def outside(self, inner: Tensor) -> Tensor:
        return inner if self.trivial else inner * self.half + self.middle

    def inside(self, action: Tensor) -> Tensor:
        return action if self.trivial else (action - self.middle) / self.half


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Independent Gaussians, one for each number of an action. Samples may leave the action's range."""

    mean: Tensor
    log_std: Tensor
    scale: Scale

    def log_prob(self, action: Tensor) -> Tensor:
        away = (self.scale.inside(action) - self.mean) * torch.exp(-self.log_std)
        constant = self.mean.shape[-1] * HALF_LOG_TAU
        return away.square().sum(-1).mul(-0.5) - self.log_std.sum(-1) - constant

    def entropy(self) -> Tensor:
        found = self.log_std.sum(-1) + self.mean.shape[-1] * (0.5 + HALF_LOG_TAU)
        return found.expand(self.mean.shape[:-1])

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        noise = torch.randn(self.mean.shape, generator=generator, device=self.mean.device)
        return self.scale.outside(self.mean + self.log_std.exp() * noise)

    def mode(self) -> Tensor:
        return self.scale.outside(self.mean)


class Drawn(NamedTuple):
    """Actions, and how they came about."""

    action: Tensor
    """In the environment's units."""
    logp: Tensor
    inside: Tensor
    """The action between -1 and 1."""
    spread: Tensor
    """How far it was from the mean, before the tangent."""


@dataclass(frozen=True, slots=True)
class SquashedGaussian:
    """The hyperbolic tangent of independent Gaussians: samples stay within the action's range."""

    mean: Tensor
    log_std: Tensor
    scale: Scale

    def draw(self, noise: Tensor) -> Drawn:
        """Actions from standard normal noise, which is drawn apart from the network: both have gradients."""
        spread = self.log_std.exp() * noise
        inner = self.mean + spread
        # Of a sample the distance from the mean is the noise itself: exact, and without gradient.
        plain = noise.square().sum(-1).mul(-0.5) - self.log_std.sum(-1)
        logp = plain - log_slope(inner).sum(-1) - self.mean.shape[-1] * HALF_LOG_TAU
        inside = torch.tanh(inner)
        return Drawn(self.scale.outside(inside), logp, inside, spread)

    def back(self, drawn: Drawn, over_inside: Tensor, over_logp: Tensor) -> Tensor:
        """From the slopes of a loss over `drawn.inside` and `drawn.logp`: that over means and logarithms of deviations,
        side by side. As autograd has it, in a fifth of the time: log(1 - tanh(x)^2) has the slope -2 tanh(x)."""
        over_mean = over_inside * (1.0 - drawn.inside.square()) + 2.0 * over_logp * drawn.inside
        free = (self.log_std > LEAST_LOG_STD) & (self.log_std < MOST_LOG_STD)
        return torch.cat((over_mean, (over_mean * drawn.spread - over_logp) * free), dim=-1)

    def log_prob(self, inner: Tensor) -> Tensor:
        """Of the numbers before the tangent: from the action itself they cannot be had back exactly."""
        away = (inner - self.mean) * torch.exp(-self.log_std)
        plain = away.square().sum(-1).mul(-0.5) - self.log_std.sum(-1)
        return plain - log_slope(inner).sum(-1) - self.mean.shape[-1] * HALF_LOG_TAU

    def mode(self) -> Tensor:
        return self.scale.outside(torch.tanh(self.mean))


def log_slope(inner: Tensor) -> Tensor:
    """log(1 - tanh(x)^2), exact also where the tangent rounds to 1."""
    return 2.0 * (math.log(2.0) - inner - functional.softplus(-2.0 * inner))
