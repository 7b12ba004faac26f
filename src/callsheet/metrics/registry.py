"""The place where a process's metrics are made, once each, and read all together."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from callsheet.errors import UserError
from callsheet.metrics import instruments
from callsheet.metrics.definition import COUNTS, LABEL_SETS, LONGEST_LABEL, SECONDS, Definition, define
from callsheet.metrics.instruments import Counter, Distribution, Gauge, Histogram, Number

Instrument = TypeVar("Instrument", Counter, Gauge, Histogram)


class Reading(NamedTuple):
    """One instrument at one moment."""

    definition: Definition
    labels: tuple[str, ...]
    """Values of the definition's labels, in its order."""
    value: Number | Distribution


class Family(Generic[Instrument]):
    """One metric with labels: an instrument for each combination of their values. Ask once and keep what you get."""

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
                f"the metric {self.definition.name!r} was asked for with the labels {_listed(labels)}",
                fix=f"give exactly these: {_listed(wanted)}",
            )
        key = tuple(str(labels[label]) for label in wanted)
        return self._members.get(key) or self._add(key)

    def _add(self, key: tuple[str, ...]) -> Instrument:
        shown = ", ".join(
            f"{label}={value[:40]!r}" for label, value in zip(self.definition.labels, key, strict=True)
        )
        if any(len(value) > LONGEST_LABEL for value in key):
            raise UserError(
                f"a label of the metric {self.definition.name!r} is longer than {LONGEST_LABEL} characters: {shown}",
                fix="use short words that come from a fixed list",
            )
        with self._lock:
            if key not in self._members and len(self._members) >= self.limit:
                raise UserError(
                    f"the metric {self.definition.name!r} has {self.limit} combinations of labels, its limit, and {shown} "
                    "would be one more",
                    fix="use labels for words from a short list, never for ids, addresses or steps; or give it a higher limit",
                )
            return self._members.setdefault(key, self._make())

    def read(self) -> list[tuple[tuple[str, ...], Instrument]]:
        """Every instrument with its labels' values."""
        return list(self._members.items())

    def forget_parent(self) -> None:
        """In a forked child: what the parent has counted is the parent's, and a lock that it held stays held."""
        self._lock = threading.Lock()
        for member in self._members.values():
            member.reset()


class Registry:
    """The metrics of one process. A name that is asked for again, with the same meaning, is the same metric."""

    def __init__(self) -> None:
        self._families: dict[str, Family[Counter] | Family[Gauge] | Family[Histogram]] = {}
        self._lock = threading.Lock()
        self.failures = Counter()
        """How often a followed function failed; its metric is then left out."""
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
        """Counters that labels tell apart."""
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
        """A number that goes up and down. `adds_up`: the replicas' values are shown as their sum, not their mean."""
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
        """Gauges that labels tell apart."""
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
        """How values are spread. Without buckets: fit for times when the unit is seconds, else for counts."""
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
        """Histograms that labels tell apart."""
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
                f"the metric {new.definition.name!r} is already there with another meaning: {known.definition.help}",
                fix="choose another name, or describe it in the same words",
            )
        return known  # type: ignore[return-value] # equal definitions have equal kinds

    def definitions(self) -> list[Definition]:
        """What there is, in the order in which it was made."""
        return [family.definition for family in list(self._families.values())]

    def snapshot(self) -> list[Reading]:
        """Every instrument now. Takes no lock: a signal's handler may call it."""
        found: list[Reading] = []
        for family in list(self._families.values()):
            for labels, member in family.read():
                try:
                    found.append(Reading(family.definition, labels, member.value))
                except Exception:  # noqa: BLE001 - a user's function; the others must be seen all the same
                    self.failures.add()
        return found


_registries: weakref.WeakSet[Registry] = weakref.WeakSet()


def _after_fork() -> None:
    for registry in list(_registries):
        registry._lock = threading.Lock()
        for family in registry._families.values():
            family.forget_parent()


os.register_at_fork(after_in_child=_after_fork)


def _listed(words: Sequence[str] | dict[str, str]) -> str:
    return ", ".join(words) or "none"
