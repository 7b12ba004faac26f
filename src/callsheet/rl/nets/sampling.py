"""Actions out of a policy's last layer, on the actor's hot path: a handful of NumPy calls on buffers made once.

Everything is in columns: [numbers of an action, batch]. So the layers' bias costs nothing (see `numpy.py`), and sums
over a few actions are additions of whole rows, which NumPy does ten times faster than sums within rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.distributions.numpy import log_slope
from callsheet.rl.distributions.scaling import (
    HALF_LOG_TAU,
    LEAST_LOG_STD,
    MASKED,
    MOST_LOG_STD,
    Scaling,
)

Floats = NDArray[np.float32]
Masks = NDArray[np.generic]


class Actions(NamedTuple):
    """What a policy says about one observation of each environment. The arrays are the caller's to keep."""

    action: NDArray[np.int64] | Floats
    """[B] for a finite number of actions, [B, A] in the environment's units for continuous ones."""
    logp: Floats | None
    """[B], logarithm of the probability (density) with which the policy chose; None for values of actions."""
    value: Floats | None
    """[B], the value of the observation; the best action's for values of actions; None where there is none."""
    state: Floats | None = None
    """[B, S], a recurrent policy's state after this step."""
    chosen: Floats | None = None
    """[B], the value of the action that was chosen, for values of actions."""


class Choices:
    """Draws from categorical distributions, [n, B]."""

    def __init__(self, actions: int, batch: int) -> None:
        self._chances = np.empty((actions, batch), np.float32)
        self._sums = np.empty((actions, batch), np.float32)
        self._above = np.empty((actions, batch), np.bool_)
        self._most = np.empty(batch, np.float32)
        self._mark = np.empty(batch, np.float32)
        self._columns = np.arange(batch)

    def draw(
        self, logits: Floats, rng: np.random.Generator, *, greedy: bool = False, masks: Masks | None = None
    ) -> tuple[NDArray[np.int64], Floats]:
        """Actions and their log-probabilities. The logits are used up."""
        sums = self._sums
        if masks is not None:
            np.copyto(logits, np.float32(MASKED), where=masks.T == 0)
        np.maximum.reduce(logits, axis=0, out=self._most)
        np.subtract(logits, self._most, out=logits)
        np.exp(logits, out=self._chances)
        np.add.accumulate(self._chances, axis=0, out=sums)
        total = sums[-1]
        if greedy:
            action = logits.argmax(axis=0)
        else:
            rng.random(dtype=np.float32, out=self._mark)
            np.multiply(self._mark, total, out=self._mark)
            # The first sum above the mark. "<=", so that a mark of 0 does not choose an action of probability 0.
            np.less_equal(sums, self._mark, out=self._above)
            action = self._above.argmin(axis=0)
        logp: Floats = logits[action, self._columns]
        np.log(total, out=total)
        np.subtract(logp, total, out=logp)
        return action, logp


def gaussian(
    mean: Floats, log_std: Floats, scaling: Scaling, rng: np.random.Generator, *, greedy: bool = False
) -> tuple[Floats, Floats]:
    """Actions [B, A] and their log-probabilities from means [A, B] and a deviation [A] that is the same for all."""
    constant = np.float32(-log_std.sum() - len(log_std) * HALF_LOG_TAU)
    if greedy:
        return _outside(mean, scaling), np.full(mean.shape[1], constant)
    noise = rng.standard_normal(mean.shape, np.float32)
    inner = np.exp(log_std)[:, None] * noise
    inner += mean
    np.multiply(noise, noise, out=noise)
    logp: Floats = np.add.reduce(noise, axis=0)
    logp *= np.float32(-0.5)
    logp += constant
    return _outside(inner, scaling), logp


def squashed(
    out: Floats, scaling: Scaling, rng: np.random.Generator, *, greedy: bool = False
) -> tuple[Floats, Floats]:
    """Actions [B, A] and their log-probabilities from means and deviations [2A, B]."""
    size = len(scaling.half)
    inner = out[:size]
    log_std = np.clip(out[size:], np.float32(LEAST_LOG_STD), np.float32(MOST_LOG_STD))
    logp = -log_std
    if not greedy:
        noise: Floats = rng.standard_normal(inner.shape, np.float32)
        logp -= np.float32(0.5) * noise * noise
        noise *= np.exp(log_std)
        noise += inner
        inner = noise
    logp -= log_slope(inner)
    total: Floats = np.add.reduce(logp, axis=0)
    total -= np.float32(size * HALF_LOG_TAU)
    return _outside(np.tanh(inner), scaling), total


def best(
    values: Floats,
    epsilon: float | Floats,
    rng: np.random.Generator,
    *,
    greedy: bool = False,
    masks: Masks | None = None,
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """The best of the actions [n, B], or with probability `epsilon` any that is allowed; the best one's value, and the
    value of the one that was chosen."""
    if masks is not None:
        np.copyto(values, np.float32(MASKED), where=masks.T == 0)
    action = values.argmax(axis=0)
    value = np.maximum.reduce(values, axis=0)
    if greedy or (isinstance(epsilon, float) and epsilon == 0.0):
        return action, value, value
    batch = values.shape[1]
    curious = rng.random(batch) < epsilon
    if masks is None:
        other = rng.integers(len(values), size=batch)
    else:
        other = (rng.random(masks.shape) * (masks != 0)).argmax(axis=1)
    action = np.where(curious, other, action)
    return action, value, values[action, np.arange(batch)]


def _outside(inner: Floats, scaling: Scaling) -> Floats:
    """In rows and in the environment's units; memory of its own."""
    action: Floats = np.multiply(inner.T, scaling.half, order="C")
    action += scaling.middle
    return action
