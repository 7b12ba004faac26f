"""A process's metrics at one moment as a JSON object: a line in ``metrics/``, and what the port serves as JSON.

The writer computes rates and recent quantiles, so that readers need only the newest line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from callsheet.metrics.definition import Definition
from callsheet.metrics.instruments import Distribution, Number
from callsheet.metrics.registry import Reading
from callsheet.metrics.targets import Identity

_Moment = tuple[float, dict[str, Number | Distribution]]


class LineMaker:
    """Makes the lines of one process. It remembers the previous one, because a rate is a difference."""

    def __init__(self, identity: Identity, interval: float) -> None:
        self._identity = identity
        self._interval = interval
        self._moments: list[_Moment] = []
        self._number = 0

    def make(
        self, readings: Iterable[Reading], *, now: float, clock: float, last: bool = False
    ) -> dict[str, Any]:
        """The current line; `now` is the wall clock and `clock` a monotonic one."""
        readings = list(readings)
        values = {key(reading): reading.value for reading in readings}
        since, before = self._base(clock)
        elapsed = clock - since
        line: dict[str, Any] = {
            "time": round(now, 3),
            "line": self._number,
            "interval": self._interval,
            "experiment": self._identity.experiment,
            "run": self._identity.run,
            "role": self._identity.role,
            "index": self._identity.index,
            "container": self._identity.container,
            "attempt": self._identity.attempt,
            "last": last,
            "metrics": {name: _plain(value) for name, value in values.items()},
            "rates": {},
            "recent": {},
            "shown": [],
        }
        for reading in readings:
            name = key(reading)
            then = before.get(name)
            if isinstance(reading.value, Distribution):
                spread = reading.value.since(then) if isinstance(then, Distribution) else reading.value
                if spread.count:
                    line["recent"][name] = {
                        "p50": _short(spread.quantile(0.5)),
                        "p99": _short(spread.quantile(0.99)),
                    }
            elif reading.definition.kind == "counter" and elapsed > 0:
                start = 0 if then is None or isinstance(then, Distribution) else then
                line["rates"][name] = _short((reading.value - start) / elapsed)
        line["shown"] = _shown(readings, line)
        self._number += 1
        # A metric that could not be read now is later compared with its last value, not with 0.
        known = {**self._moments[-1][1], **values} if self._moments else values
        self._moments = [*self._moments[-1:], (clock, known)]
        return line

    def _base(self, clock: float) -> _Moment:
        """The moment to compare with: the previous one, or the one before if that is very recent, as at the end."""
        if not self._moments:
            return clock, {}
        near = clock - self._moments[-1][0] < self._interval / 2
        return self._moments[0] if near else self._moments[-1]


def key(reading: Reading) -> str:
    """The metric's name with its labels: ``refusals{reason="key"}``."""
    if not reading.labels:
        return reading.definition.name
    pairs = zip(reading.definition.labels, reading.labels, strict=True)
    return (
        reading.definition.name
        + "{"
        + ",".join(f"{label}={json.dumps(value)}" for label, value in pairs)
        + "}"
    )


def _plain(value: Number | Distribution) -> Any:
    if isinstance(value, Distribution):
        bounds = (*value.bounds, math.inf)
        filled = {
            "+Inf" if bound == math.inf else f"{bound:.6g}": count
            for bound, count in zip(bounds, value.counts, strict=True)
            if count
        }
        return {"count": value.count, "sum": _finite(value.total), "buckets": filled}
    return _finite(value)


def _finite(value: Number) -> Number | None:
    """JSON has neither infinities nor NaN."""
    return value if math.isfinite(value) else None


def _short(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _shown(readings: Iterable[Reading], line: dict[str, Any]) -> list[dict[str, Any]]:
    """The values to show to people, each with how to merge several processes."""
    by_name: dict[str, tuple[Definition, list[float]]] = {}
    # A program's own value comes first and wins over those of its connections with the same name.
    for reading in sorted(readings, key=lambda reading: bool(reading.labels)):
        definition = reading.definition
        known = by_name.get(definition.shown)
        if not definition.shown or (known and reading.labels and not known[0].labels):
            continue
        value = _value_shown(definition, key(reading), line)
        if value is not None:
            by_name.setdefault(definition.shown, (definition, []))[1].append(value)
    return [
        {
            "name": definition.shown,
            # Within one process, several waits add up.
            "value": merge(values, "sum" if definition.kind == "counter" else _merge_method(definition)),
            "unit": _unit(definition),
            "merge": _merge_method(definition),
        }
        for definition, values in by_name.values()
    ]


def _value_shown(definition: Definition, name: str, line: dict[str, Any]) -> float | None:
    if definition.kind == "counter":
        return line["rates"].get(name)  # type: ignore[no-any-return]
    if definition.kind == "histogram":
        return line["recent"].get(name, {}).get("p50")  # type: ignore[no-any-return]
    return line["metrics"].get(name)  # type: ignore[no-any-return]


def _merge_method(definition: Definition) -> str:
    if definition.kind == "counter":
        return "mean" if definition.unit == "seconds" else "sum"
    return "sum" if definition.adds_up else "mean"


def _unit(definition: Definition) -> str:
    """``/s`` or ``bytes/s``; seconds per second are a share of time."""
    if definition.kind != "counter":
        return definition.unit
    if definition.unit == "seconds":
        return "share"
    return "bytes/s" if definition.unit == "bytes" else "/s"


def merge(values: list[float], method: str) -> float:
    """Merge the values of several processes."""
    return float(f"{sum(values) if method == 'sum' else sum(values) / len(values):.6g}")
