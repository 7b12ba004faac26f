"""Counters, gauges and histograms that cost less to update than what they count.

Nothing here takes a lock where the GIL suffices. CPython lets another thread in only at the start of a function, at a
jump backwards and after a call, never inside ``self.value += n`` with plain numbers. A test looks at the bytecode of
every update for such places, so that a change of ours or of the interpreter cannot break it unseen. Where there is no
GIL, or another interpreter runs us, `LOCKED` is true and the same updates take a lock.

Update with plain numbers (int, float, NumPy scalars).
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

_gil_enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
LOCKED: Final = sys.implementation.name != "cpython" or not _gil_enabled()
"""Whether updates need a lock in this interpreter."""

Number = int | float


@dataclass(frozen=True)
class Distribution:
    """A histogram's content at one moment."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    """One more than there are bounds; not cumulative."""
    total: float
    """The sum of everything observed."""

    @property
    def count(self) -> int:
        """How many observations."""
        return sum(self.counts)

    def since(self, earlier: Distribution) -> Distribution:
        """What was observed after an earlier moment."""
        counts = tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True))
        return Distribution(self.bounds, counts, self.total - earlier.total)

    def quantile(self, share: float) -> float:
        """About the value below which this share lies: a straight line within its bucket, as in PromQL. 0 when empty."""
        rank = share * self.count
        passed = 0
        for place, inside in enumerate(self.counts):
            if inside and passed + inside >= rank:
                if place == len(self.bounds):
                    return self.bounds[-1]
                upper = self.bounds[place]
                lower = self.bounds[place - 1] if place else min(0.0, upper)
                return lower + (upper - lower) * (rank - passed) / inside
            passed += inside
        return 0.0


class _Scalar:
    """One number, kept here or asked for."""

    __slots__ = ("_read", "_value")

    def __init__(self) -> None:
        self._value: Number = 0
        self._read: Callable[[], Number] | None = None

    def follow(self, read: Callable[[], Number] | None) -> None:
        """Ask this function whenever somebody looks, which costs nothing in between; None to keep the number here."""
        self._read = read

    @property
    def value(self) -> Number:
        """The number now."""
        return plain(self._value if self._read is None else self._read())

    def reset(self) -> None:
        """Begin at 0, as a forked child does."""
        self._value = 0


class Counter(_Scalar):
    """A number that only grows."""

    __slots__ = ()

    def add(self, amount: Number = 1) -> None:
        """Count so many more."""
        self._value += amount


class Gauge(_Scalar):
    """A number that goes up and down."""

    __slots__ = ()

    def set(self, value: Number) -> None:
        """The number is this now."""
        self._value = value

    def add(self, amount: Number) -> None:
        """Change it by so much."""
        self._value += amount


class Histogram:
    """How often values fell into which bucket, and their sum."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total: Number = 0.0

    def observe(self, value: Number, times: int = 1) -> None:
        """Count a value, or the same value several times."""
        place = bisect_left(self._bounds, value)
        self._counts[place] += times
        self._total += value * times

    @property
    def value(self) -> Distribution:
        """The content now."""
        return Distribution(self._bounds, tuple(self._counts), float(self._total))

    def reset(self) -> None:
        """Begin empty, as a forked child does."""
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def quantile(self, share: float) -> float:
        """About the value below which this share of all observations lies; 0 when there are none."""
        return self.value.quantile(share)


class LockedCounter(Counter):
    """For interpreters without a GIL."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def add(self, amount: Number = 1) -> None:
        with self._lock:
            self._value += amount

    def reset(self) -> None:
        self._lock = threading.Lock()  # it may have been held when the process was forked
        super().reset()


class LockedGauge(Gauge):
    """For interpreters without a GIL."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def set(self, value: Number) -> None:
        with self._lock:
            self._value = value

    def add(self, amount: Number) -> None:
        with self._lock:
            self._value += amount

    def reset(self) -> None:
        self._lock = threading.Lock()
        super().reset()


class LockedHistogram(Histogram):
    """For interpreters without a GIL."""

    __slots__ = ("_lock",)

    def __init__(self, bounds: Sequence[float]) -> None:
        super().__init__(bounds)
        self._lock = threading.Lock()

    def observe(self, value: Number, times: int = 1) -> None:
        with self._lock:
            super().observe(value, times)

    @property
    def value(self) -> Distribution:
        with self._lock:
            return super().value

    def reset(self) -> None:
        self._lock = threading.Lock()
        super().reset()


def plain(value: Number) -> Number:
    """The number without a wrapper of NumPy or of a framework."""
    return value if type(value) in (int, float) else float(value)
