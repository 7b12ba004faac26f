"""Sampling actions from a policy's last layer, on the actor's hot path: a few NumPy calls on preallocated buffers.

Everything is in columns, [action dimensions, batch], as in `numpy_policy.py`. Sums over a few actions then add whole rows,
which NumPy does ten times faster than sums within rows.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.spaces import Continuous

Floats = NDArray[np.float32]
Masks = NDArray[np.generic]

MIN_LOG_STD = -20.0
MAX_LOG_STD = 2.0
"""Bounds of a squashed Gaussian's log deviation, which is a network's output."""
MASKED = -1e9
"""The logit of a forbidden action: its probability is exactly 0, and no gradient becomes NaN."""
HALF_LOG_TAU = 0.5 * math.log(2.0 * math.pi)


class ActionScaling(NamedTuple):
    """Environment's action = middle + half x policy's action. Unbounded dimensions keep their units."""

    middle: Floats
    half: Floats

    @classmethod
    def of(cls, action: Continuous) -> ActionScaling:
        low, high = np.asarray(action.low, np.float64), np.asarray(action.high, np.float64)
        bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
        # Finite values where there is no bound: infinity minus infinity would warn.
        low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
        return cls(((low + high) / 2).astype(np.float32), ((high - low) / 2).astype(np.float32))

    @property
    def trivial(self) -> bool:
        """Whether the units are equal."""
        return bool((self.middle == 0).all() and (self.half == 1).all())


class Actions(NamedTuple):
    """A policy's choice for each environment. The caller owns the arrays."""

    action: NDArray[np.int64] | Floats
    """[B] for discrete actions; [B, A], in the environment's units, for continuous ones."""
    logp: Floats | None
    """[B], log-probability (density) of the action; None with a "q" head."""
    value: Floats | None
    """[B], the value of the observation (of the best action, with a "q" head); None if there is none."""
    state: Floats | None = None
    """[B, S], a recurrent policy's state after this step."""
    chosen: Floats | None = None
    """[B], the value of the chosen action, with a "q" head."""


class CategoricalSampler:
    """Samples from categorical distributions, [n, B]."""

    def __init__(self, actions: int, batch: int) -> None:
        self._weights = np.empty((actions, batch), np.float32)
        self._sums = np.empty((actions, batch), np.float32)
        self._passed = np.empty((actions, batch), np.bool_)
        self._max = np.empty(batch, np.float32)
        self._threshold = np.empty(batch, np.float32)
        self._columns = np.arange(batch)

    def sample(
        self, logits: Floats, rng: np.random.Generator, *, greedy: bool = False, masks: Masks | None = None
    ) -> tuple[NDArray[np.int64], Floats]:
        """Actions and their log-probabilities. Overwrites the logits."""
        sums = self._sums
        if masks is not None:
            np.copyto(logits, np.float32(MASKED), where=masks.T == 0)
        np.maximum.reduce(logits, axis=0, out=self._max)
        np.subtract(logits, self._max, out=logits)
        np.exp(logits, out=self._weights)
        np.add.accumulate(self._weights, axis=0, out=sums)
        total = sums[-1]
        if greedy:
            action = logits.argmax(axis=0)
        else:
            rng.random(dtype=np.float32, out=self._threshold)
            np.multiply(self._threshold, total, out=self._threshold)
            # The first sum above the threshold. "<=", so that 0 does not choose an action of probability 0.
            np.less_equal(sums, self._threshold, out=self._passed)
            action = self._passed.argmin(axis=0)
        logp: Floats = logits[action, self._columns]
        np.log(total, out=total)
        np.subtract(logp, total, out=logp)
        return action, logp


def gaussian(
    mean: Floats, log_std: Floats, scaling: ActionScaling, rng: np.random.Generator, *, greedy: bool = False
) -> tuple[Floats, Floats]:
    """Actions [B, A] and their log-probabilities from means [A, B] and a common deviation [A]."""
    constant = np.float32(-log_std.sum() - len(log_std) * HALF_LOG_TAU)
    if greedy:
        return _to_environment(mean, scaling), np.full(mean.shape[1], constant)
    noise = rng.standard_normal(mean.shape, np.float32)
    inner = np.exp(log_std)[:, None] * noise
    inner += mean
    np.multiply(noise, noise, out=noise)
    logp: Floats = np.add.reduce(noise, axis=0)
    logp *= np.float32(-0.5)
    logp += constant
    return _to_environment(inner, scaling), logp


def squashed(
    out: Floats, scaling: ActionScaling, rng: np.random.Generator, *, greedy: bool = False
) -> tuple[Floats, Floats]:
    """Actions [B, A] and their log-probabilities from means and deviations [2A, B]."""
    size = len(scaling.half)
    inner = out[:size]
    log_std = np.clip(out[size:], np.float32(MIN_LOG_STD), np.float32(MAX_LOG_STD))
    logp = -log_std
    if not greedy:
        noise: Floats = rng.standard_normal(inner.shape, np.float32)
        logp -= np.float32(0.5) * noise * noise
        noise *= np.exp(log_std)
        noise += inner
        inner = noise
    logp -= log_tanh_derivative(inner)
    total: Floats = np.add.reduce(logp, axis=0)
    total -= np.float32(size * HALF_LOG_TAU)
    return _to_environment(np.tanh(inner), scaling), total


def epsilon_greedy(
    values: Floats,
    epsilon: float | Floats,
    rng: np.random.Generator,
    *,
    greedy: bool = False,
    masks: Masks | None = None,
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Epsilon-greedy choice from action values [n, B]; also the best value and the value of the chosen action."""
    if masks is not None:
        np.copyto(values, np.float32(MASKED), where=masks.T == 0)
    action = values.argmax(axis=0)
    value = np.maximum.reduce(values, axis=0)
    if greedy or (isinstance(epsilon, float) and epsilon == 0.0):
        return action, value, value
    batch = values.shape[1]
    explores = rng.random(batch) < epsilon
    if masks is None:
        other = rng.integers(len(values), size=batch)
    else:
        other = (rng.random(masks.shape) * (masks != 0)).argmax(axis=1)
    action = np.where(explores, other, action)
    return action, value, values[action, np.arange(batch)]


def _to_environment(inner: Floats, scaling: ActionScaling) -> Floats:
    """A copy in rows and in the environment's units."""
    action: Floats = np.multiply(inner.T, scaling.half, order="C")
    action += scaling.middle
    return action


def log_tanh_derivative(inner: Floats) -> Floats:
    """log(1 - tanh(x)^2), exact even where tanh rounds to 1."""
    result: Floats = np.float32(2.0) * (
        np.float32(np.log(2.0)) - inner - np.logaddexp(np.float32(0.0), np.float32(-2.0) * inner)
    )
    return result
