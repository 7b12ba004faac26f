"""Metrics in Prometheus' text format 0.0.4, and in OpenMetrics 1.0 on request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from callsheet.metrics.definition import PREFIX, Definition
from callsheet.metrics.instruments import Distribution, Number
from callsheet.metrics.registry import Reading
from callsheet.metrics.targets import Identity

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
JSON: Final = "application/json"
"""The newest JSON line, for our own tools."""


def text(readings: Sequence[Reading], identity: Identity, *, openmetrics: bool = False) -> str:
    """The whole page."""
    lines = _info(identity, openmetrics=openmetrics)
    for definition, group in groupby(readings, key=lambda reading: reading.definition):
        lines += _head(definition, openmetrics=openmetrics)
        for reading in group:
            lines += _samples(reading, openmetrics=openmetrics)
    if openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _info(identity: Identity, *, openmetrics: bool) -> list[str]:
    """The process's identity, as an info metric to join with."""
    pairs = (
        ("experiment", identity.experiment),
        ("run", identity.run),
        ("role", identity.role),
        ("index", str(identity.index)),
        ("container", identity.container),
        ("attempt", str(identity.attempt)),
    )
    name = f"{PREFIX}process"
    shown, kind = (name, "info") if openmetrics else (f"{name}_info", "gauge")
    labels = _labels(pairs)
    return [
        f"# HELP {shown} Which process of which run this is.",
        f"# TYPE {shown} {kind}",
        f"{name}_info{labels} 1",
    ]


def _head(definition: Definition, *, openmetrics: bool) -> list[str]:
    name = definition.full_name
    if definition.kind == "counter" and not openmetrics:
        name += "_total"
    help = definition.help.replace("\\", "\\\\").replace("\n", "\\n")
    if openmetrics:
        help = help.replace('"', '\\"')
    unit = [f"# UNIT {name} {definition.unit}"] if openmetrics and definition.unit else []
    return [f"# HELP {name} {help}", f"# TYPE {name} {definition.kind}", *unit]


def _samples(reading: Reading, *, openmetrics: bool) -> list[str]:
    name, value = reading.definition.full_name, reading.value
    pairs = tuple(zip(reading.definition.labels, reading.labels, strict=True))
    if not isinstance(value, Distribution):
        ending = "_total" if reading.definition.kind == "counter" else ""
        return [f"{name}{ending}{_labels(pairs)} {_number(value)}"]
    lines = []
    below = 0
    for bound, count in zip((*value.bounds, math.inf), value.counts, strict=True):
        below += count
        lines.append(f"{name}_bucket{_labels((*pairs, ('le', _number(bound))))} {below}")
    if openmetrics and value.bounds[0] < 0:
        return lines  # OpenMetrics allows no sum that may fall, and no count without it
    lines.append(f"{name}_count{_labels(pairs)} {below}")
    lines.append(f"{name}_sum{_labels(pairs)} {_number(value.total)}")
    return lines


def _labels(pairs: Sequence[tuple[str, str]]) -> str:
    if not pairs:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: Number) -> str:
    if isinstance(value, float):
        if math.isinf(value):
            return "+Inf" if value > 0 else "-Inf"
        return "NaN" if math.isnan(value) else repr(value)
    return str(value)
