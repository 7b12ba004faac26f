"""Distributions over actions in NumPy, for actors and for learners without a framework.

The last axis holds the actions (or the dimensions of one action); all others are batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.distributions.scaling import HALF_LOG_TAU, MASKED, ActionScaling

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class Categorical:
    """A choice among discrete actions. Where a mask is 0, the action has probability 0."""

    def __init__(self, logits: Floats, masks: NDArray[np.generic] | None = None) -> None:
        if masks is not None:
            logits = np.where(masks.astype(bool), logits, np.float32(MASKED))
        shifted = logits - logits.max(axis=-1, keepdims=True)
        self.log_probs: Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))

    def log_prob(self, action: NDArray[np.integer]) -> Floats:
        result: Floats = np.take_along_axis(self.log_probs, action[..., None], axis=-1)[..., 0]
        return result

    def entropy(self) -> Floats:
        result: Floats = -(np.exp(self.log_probs) * self.log_probs).sum(axis=-1)
        return result

    def sample(self, rng: np.random.Generator) -> Integers:
        """By the inverse cumulative distribution: one random number per choice."""
        cumulated = np.exp(self.log_probs).cumsum(axis=-1)
        threshold = rng.random(cumulated.shape[:-1], np.float32)[..., None] * cumulated[..., -1:]
        # The first sum above the threshold. "<=", so that 0 does not choose an action of probability 0.
        result: Integers = (cumulated <= threshold).argmin(axis=-1)
        return result

    def mode(self) -> Integers:
        result: Integers = self.log_probs.argmax(axis=-1)
        return result


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Independent Gaussians, one per action dimension. Samples may leave the action's range."""

    mean: Floats
    log_std: Floats
    scaling: ActionScaling

    def log_prob(self, action: Floats) -> Floats:
        inner = (action - self.scaling.middle) / self.scaling.half
        away = (inner - self.mean) * np.exp(-self.log_std)
        result: Floats = (-0.5 * away * away - self.log_std - np.float32(HALF_LOG_TAU)).sum(axis=-1)
        return result

    def entropy(self) -> Floats:
        result: Floats = (
            np.broadcast_to(self.log_std, self.mean.shape) + np.float32(0.5 + HALF_LOG_TAU)
        ).sum(axis=-1)
        return result

    def sample(self, rng: np.random.Generator) -> Floats:
        inner: Floats = rng.standard_normal(self.mean.shape, np.float32)
        inner *= np.exp(self.log_std)
        inner += self.mean
        return _to_environment(inner, self.scaling)

    def mode(self) -> Floats:
        return _to_environment(self.mean, self.scaling)


@dataclass(frozen=True, slots=True)
class SquashedGaussian:
    """Tanh of independent Gaussians: samples stay within the action's range."""

    mean: Floats
    log_std: Floats
    scaling: ActionScaling

    def log_prob(self, inner: Floats) -> Floats:
        """Of the value before tanh, which cannot be recovered exactly from the action."""
        away = (inner - self.mean) * np.exp(-self.log_std)
        plain = -0.5 * away * away - self.log_std - np.float32(HALF_LOG_TAU)
        result: Floats = (plain - log_tanh_derivative(inner)).sum(axis=-1)
        return result

    def sample(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Actions, and the values before tanh."""
        inner: Floats = rng.standard_normal(self.mean.shape, np.float32)
        inner *= np.exp(self.log_std)
        inner += self.mean
        return _to_environment(np.tanh(inner), self.scaling), inner

    def mode(self) -> Floats:
        return _to_environment(np.tanh(self.mean), self.scaling)


def log_tanh_derivative(inner: Floats) -> Floats:
    """log(1 - tanh(x)^2), exact even where tanh rounds to 1."""
    result: Floats = np.float32(2.0) * (
        np.float32(np.log(2.0)) - inner - np.logaddexp(np.float32(0.0), np.float32(-2.0) * inner)
    )
    return result


def _to_environment(inner: Floats, scaling: ActionScaling) -> Floats:
    result: Floats = inner * scaling.half + scaling.middle
    return result
