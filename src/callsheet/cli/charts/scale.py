"""What both drawings share: series of points, and axes with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from callsheet.cli import formatting


@dataclass(frozen=True)
class Series:
    """One curve."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """A range of numbers with ticks at round ones."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """The position of a value: 0 at the low end, 1 at the high end."""
        return (value - self.low) / (self.high - self.low)


def axis(values: Sequence[float], ticks: int, *, from_zero: bool = False) -> Axis:
    """An axis for these values with about this many ticks."""
    low, high = min(values), max(values)
    if from_zero:
        low = min(low, 0.0)
    if low == high:
        room = abs(low) * 0.1 or 1.0
        low, high = low - room, high + room
    step = _round_step((high - low) / max(1, ticks - 1))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return Axis(low, high, tuple(number * step for number in range(first, last + 1)))


def _round_step(rough: float) -> float:
    """The next larger of 1, 2, 2.5 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))


def label(value: float, axis: Axis, *, seconds: bool = False) -> str:
    """The label of a tick, as short as it stays exact."""
    if abs(value) < 1e-9 * (axis.high - axis.low):
        value = 0.0
    if seconds and axis.high >= 120:
        return formatting.age(value)
    if abs(value) >= 10_000:
        return formatting.short(value)
    return f"{value:.6g}"
