"""Distributions over actions in NumPy: for actors, for learners without a framework, and to check PyTorch's against.

The last axis holds the actions (or the numbers of one action); all others are batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.distributions.scaling import HALF_LOG_TAU, MASKED, Scaling

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class Categorical:
    """A choice among a finite number of actions. Where a mask is 0 the action has probability 0."""

    def __init__(self, logits: Floats, masks: NDArray[np.generic] | None = None) -> None:
        if masks is not None:
            logits = np.where(masks.astype(bool), logits, np.float32(MASKED))
        shifted = logits - logits.max(axis=-1, keepdims=True)
        self.log_probs: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

    def log_prob(self, action: NDArray[np.integer]) -> Floats:
        found: Floats = np.take_along_axis(self.log_probs, action[..., None], axis=-1)[..., 0]
        return found

    def entropy(self) -> Floats:
        found: Floats = -(np.exp(self.log_probs) * self.log_probs).sum(axis=-1)
        return found

    def sample(self, rng: np.random.Generator) -> Integers:
        """By the inverse of the cumulated probabilities: one random number for each choice."""
        cumulated = np.exp(self.log_probs).cumsum(axis=-1)
        mark = rng.random(cumulated.shape[:-1], np.float32)[..., None] * cumulated[..., -1:]
        # The first sum above the mark. "<=", so that a mark of 0 does not choose an action of probability 0.
        found: Integers = (cumulated <= mark).argmin(axis=-1)
        return found

    def mode(self) -> Integers:
        found: Integers = self.log_probs.argmax(axis=-1)
        return found


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Independent Gaussians, one for each number of an action. Samples may leave the action's range."""

    mean: Floats
    log_std: Floats
    scaling: Scaling

    def log_prob(self, action: Floats) -> Floats:
        inner = (action - self.scaling.middle) / self.scaling.half
        away = (inner - self.mean) * np.exp(-self.log_std)
        found: Floats = (-0.5 * away * away - self.log_std - np.float32(HALF_LOG_TAU)).sum(axis=-1)
        return found

    def entropy(self) -> Floats:
        found: Floats = (np.broadcast_to(self.log_std, self.mean.shape) + np.float32(0.5 + HALF_LOG_TAU)).sum(
            axis=-1
        )
        return found

    def sample(self, rng: np.random.Generator) -> Floats:
        inner: Floats = rng.standard_normal(self.mean.shape, np.float32)
        inner *= np.exp(self.log_std)
        inner += self.mean
        return _outside(inner, self.scaling)

    def mode(self) -> Floats:
        return _outside(self.mean, self.scaling)


@dataclass(frozen=True, slots=True)
class SquashedGaussian:
    """The hyperbolic tangent of independent Gaussians: samples stay within the action's range."""

    mean: Floats
    log_std: Floats
    scaling: Scaling

    def log_prob(self, inner: Floats) -> Floats:
        """Of the numbers before the tangent: from the action itself they cannot be had back exactly."""
        away = (inner - self.mean) * np.exp(-self.log_std)
        plain = -0.5 * away * away - self.log_std - np.float32(HALF_LOG_TAU)
        found: Floats = (plain - log_slope(inner)).sum(axis=-1)
        return found

    def sample(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Actions, and the numbers before the tangent."""
        inner: Floats = rng.standard_normal(self.mean.shape, np.float32)
        inner *= np.exp(self.log_std)
        inner += self.mean
        return _outside(np.tanh(inner), self.scaling), inner

    def mode(self) -> Floats:
        return _outside(np.tanh(self.mean), self.scaling)


def log_slope(inner: Floats) -> Floats:
    """log(1 - tanh(x)^2), exact also where the tangent rounds to 1."""
    found: Floats = np.float32(2.0) * (
        np.float32(np.log(2.0)) - inner - np.logaddexp(np.float32(0.0), np.float32(-2.0) * inner)
    )
    return found


def _outside(inner: Floats, scaling: Scaling) -> Floats:
    found: Floats = inner * scaling.half + scaling.middle
    return found
