"""A process's counters, gauges and histograms, exported to a Prometheus port, JSON lines and TensorBoard files.

Names are loaded on first use, so that reading metrics does not import what exports them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet import lazy

if TYPE_CHECKING:
    from callsheet.metrics.definition import BYTES, COUNTS, SECONDS, exponential
    from callsheet.metrics.exporter import Exporter
    from callsheet.metrics.files import Sink
    from callsheet.metrics.instruments import Counter, Gauge, Histogram
    from callsheet.metrics.registry import Family, Registry
    from callsheet.metrics.targets import ExportTargets

__all__ = [
    "BYTES",
    "COUNTS",
    "Counter",
    "ExportTargets",
    "Exporter",
    "Family",
    "Gauge",
    "Histogram",
    "Registry",
    "SECONDS",
    "Sink",
    "exponential",
]

_HOMES = {
    "BYTES": "definition",
    "COUNTS": "definition",
    "Counter": "instruments",
    "ExportTargets": "targets",
    "Exporter": "exporter",
    "Family": "registry",
    "Gauge": "instruments",
    "Histogram": "instruments",
    "Registry": "registry",
    "SECONDS": "definition",
    "Sink": "files",
    "exponential": "definition",
}

__getattr__, __dir__ = lazy.names(__name__, _HOMES)
