"""Counters, gauges and histograms that are cheap to update.

They take no lock where the GIL suffices: CPython switches threads only at the start of a function, at a backward jump and
after a call, never inside ``self.value += n`` with plain numbers. A test checks the bytecode of every update for such
places. Without a GIL, or in another interpreter, `LOCKED` is true and the updates take a lock.

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
    """One more than bounds; not cumulative."""
    total: float
    """Sum of all observations."""

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    def since(self, earlier: Distribution) -> Distribution:
        """What was observed since an earlier moment."""
        counts = tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True))
        return Distribution(self.bounds, counts, self.total - earlier.total)

    def quantile(self, share: float) -> float:
        """Estimate a quantile by linear interpolation within its bucket, as PromQL does; 0 if empty."""
        rank = share * self.count
        passed = 0
        for bucket, inside in enumerate(self.counts):
            if inside and passed + inside >= rank:
                if bucket == len(self.bounds):
                    return self.bounds[-1]
                upper = self.bounds[bucket]
                lower = self.bounds[bucket - 1] if bucket else min(0.0, upper)
                return lower + (upper - lower) * (rank - passed) / inside
            passed += inside
        return 0.0


class _Scalar:
    """One number, stored or computed on demand."""

    __slots__ = ("_read", "_value")

    def __init__(self) -> None:
        self._value: Number = 0
        self._read: Callable[[], Number] | None = None

    def follow(self, read: Callable[[], Number] | None) -> None:
        """Call this function whenever the value is read; None to store the value here again."""
        self._read = read

    @property
    def value(self) -> Number:
        """The current value."""
        return plain(self._value if self._read is None else self._read())

    def reset(self) -> None:
        """Reset to 0, in a forked child."""
        self._value = 0


class Counter(_Scalar):
    """A number that only grows."""

    __slots__ = ()

    def add(self, amount: Number = 1) -> None:
        """Add to the count."""
        self._value += amount


class Gauge(_Scalar):
    """A number that goes up and down."""

    __slots__ = ()

    def set(self, value: Number) -> None:
        """Set the value."""
        self._value = value

    def add(self, amount: Number) -> None:
        """Change the value by an amount."""
        self._value += amount


class Histogram:
    """Counts of values by bucket, and their sum."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total: Number = 0.0

    def observe(self, value: Number, times: int = 1) -> None:
        """Count a value, once or several times."""
        place = bisect_left(self._bounds, value)
        self._counts[place] += times
        self._total += value * times

    @property
    def value(self) -> Distribution:
        """The current content."""
        return Distribution(self._bounds, tuple(self._counts), float(self._total))

    def reset(self) -> None:
        """Reset to empty, in a forked child."""
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def quantile(self, share: float) -> float:
        """Estimate a quantile of all observations; 0 if there are none."""
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
    """The number without a NumPy or framework wrapper."""
    return value if type(value) in (int, float) else float(value)
