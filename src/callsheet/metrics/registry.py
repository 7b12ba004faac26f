"""Creates a process's metrics, each once, and reads them all together."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from callsheet.errors import UserError
from callsheet.metrics import instruments
from callsheet.metrics.definition import COUNTS, LABEL_SETS, MAX_LABEL_LENGTH, SECONDS, Definition, define
from callsheet.metrics.instruments import Counter, Distribution, Gauge, Histogram, Number

Instrument = TypeVar("Instrument", Counter, Gauge, Histogram)


class Reading(NamedTuple):
    """An instrument's value at one moment."""

    definition: Definition
    labels: tuple[str, ...]
    """The label values, in the definition's order."""
    value: Number | Distribution


class Family(Generic[Instrument]):
    """A metric with labels: one instrument per combination of label values. Call `of` once and keep the result."""

    def __init__(self, definition: Definition, make: Callable[[], Instrument], limit: int) -> None:
        self.definition = definition
        self.limit = limit
        self._make: Callable[[], Instrument] = make
        self._members: dict[tuple[str, ...], Instrument] = {}
        self._lock = threading.Lock()

    def of(self, **labels: str) -> Instrument:
        """The instrument with these labels."""
        wanted = self.definition.labels
        if len(labels) != len(wanted) or any(label not in labels for label in wanted):
            raise UserError(
                f"the metric {self.definition.name!r} was requested with the labels {_listed(labels)}",
                fix=f"use exactly these: {_listed(wanted)}",
            )
        key = tuple(str(labels[label]) for label in wanted)
        return self._members.get(key) or self._add(key)

    def _add(self, key: tuple[str, ...]) -> Instrument:
        shown = ", ".join(
            f"{label}={value[:40]!r}" for label, value in zip(self.definition.labels, key, strict=True)
        )
        if any(len(value) > MAX_LABEL_LENGTH for value in key):
            raise UserError(
                f"a label of the metric {self.definition.name!r} is longer than {MAX_LABEL_LENGTH} characters: {shown}",
                fix="use short values from a fixed list",
            )
        with self._lock:
            if key not in self._members and len(self._members) >= self.limit:
                raise UserError(
                    f"the metric {self.definition.name!r} already has {self.limit} label combinations, its limit; {shown} would be "
                    "one more",
                    fix="use labels for a few fixed values, never for ids, addresses or steps; or raise the limit",
                )
            return self._members.setdefault(key, self._make())

    def read(self) -> list[tuple[tuple[str, ...], Instrument]]:
        """Every instrument with its label values."""
        return list(self._members.items())

    def forget_parent(self) -> None:
        """In a forked child: reset the counts, which are the parent's, and the lock, which the parent may have held."""
        self._lock = threading.Lock()
        for member in self._members.values():
            member.reset()


class Registry:
    """The metrics of one process. Requesting the same name and meaning again returns the same metric."""

    def __init__(self) -> None:
        self._families: dict[str, Family[Counter] | Family[Gauge] | Family[Histogram]] = {}
        self._lock = threading.Lock()
        self.failures = Counter()
        """How often a followed function failed; its metric is then skipped."""
        _registries.add(self)

    def counter(self, name: str, help: str, *, unit: str = "", shown: bool | str = False) -> Counter:
        """A number that only grows."""
        return self.counters(name, help, (), unit=unit, shown=shown).of()

    def counters(
        self,
        name: str,
        help: str,
        labels: Sequence[str],
        *,
        unit: str = "",
        shown: bool | str = False,
        limit: int = LABEL_SETS,
    ) -> Family[Counter]:
        """Counters by label."""
        definition = define(name, "counter", help, unit=unit, labels=labels, shown=shown)
        make = instruments.LockedCounter if instruments.LOCKED else Counter
        return self._family(Family(definition, make, limit))

    def gauge(
        self,
        name: str,
        help: str,
        *,
        unit: str = "",
        shown: bool | str = False,
        adds_up: bool = False,
    ) -> Gauge:
        """A number that goes up and down. `adds_up`: replicas' values are shown as their sum, not their mean."""
        return self.gauges(name, help, (), unit=unit, shown=shown, adds_up=adds_up).of()

    def gauges(
        self,
        name: str,
        help: str,
        labels: Sequence[str],
        *,
        unit: str = "",
        shown: bool | str = False,
        adds_up: bool = False,
        limit: int = LABEL_SETS,
    ) -> Family[Gauge]:
        """Gauges by label."""
        definition = define(name, "gauge", help, unit=unit, labels=labels, shown=shown, adds_up=adds_up)
        make = instruments.LockedGauge if instruments.LOCKED else Gauge
        return self._family(Family(definition, make, limit))

    def histogram(
        self,
        name: str,
        help: str,
        *,
        unit: str = "",
        buckets: Sequence[float] | None = None,
        shown: bool | str = False,
    ) -> Histogram:
        """The distribution of values. The default buckets suit times if the unit is seconds, otherwise counts."""
        return self.histograms(name, help, (), unit=unit, buckets=buckets, shown=shown).of()

    def histograms(
        self,
        name: str,
        help: str,
        labels: Sequence[str],
        *,
        unit: str = "",
        buckets: Sequence[float] | None = None,
        shown: bool | str = False,
        limit: int = LABEL_SETS,
    ) -> Family[Histogram]:
        """Histograms by label."""
        if buckets is None:
            buckets = SECONDS if unit == "seconds" else COUNTS
        definition = define(name, "histogram", help, unit=unit, labels=labels, bounds=buckets, shown=shown)
        make = instruments.LockedHistogram if instruments.LOCKED else Histogram
        return self._family(Family(definition, lambda: make(definition.bounds), limit))

    def _family(self, new: Family[Instrument]) -> Family[Instrument]:
        with self._lock:
            known = self._families.setdefault(new.definition.name, new)
        if known.definition != new.definition or known.limit != new.limit:
            raise UserError(
                f"the metric {new.definition.name!r} already exists with another meaning: {known.definition.help}",
                fix="choose another name, or use the same definition",
            )
        return known  # type: ignore[return-value] # equal definitions have equal kinds

    def definitions(self) -> list[Definition]:
        """All definitions, in the order of creation."""
        return [family.definition for family in list(self._families.values())]

    def snapshot(self) -> list[Reading]:
        """The current value of every instrument. Takes no lock, so that a signal handler may call it."""
        readings: list[Reading] = []
        for family in list(self._families.values()):
            for labels, member in family.read():
                try:
                    readings.append(Reading(family.definition, labels, member.value))
                except Exception:  # noqa: BLE001 - a user's function; the others must still be read
                    self.failures.add()
        return readings


_registries: weakref.WeakSet[Registry] = weakref.WeakSet()


def _after_fork() -> None:
    for registry in list(_registries):
        registry._lock = threading.Lock()
        for family in registry._families.values():
            family.forget_parent()


os.register_at_fork(after_in_child=_after_fork)


def _listed(words: Sequence[str] | dict[str, str]) -> str:
    return ", ".join(words) or "none"
