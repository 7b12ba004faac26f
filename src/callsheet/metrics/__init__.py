"""Counters, gauges and histograms of a process, and their way out: a Prometheus port, JSON lines, TensorBoard files.

Names are loaded when first used: whoever only reads metrics does not wait for what exports them.
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
    from callsheet.metrics.targets import Outlets

__all__ = [
    "BYTES",
    "COUNTS",
    "Counter",
    "Exporter",
    "Family",
    "Gauge",
    "Histogram",
    "Outlets",
    "Registry",
    "SECONDS",
    "Sink",
    "exponential",
]

_HOMES = {
    "BYTES": "definition",
    "COUNTS": "definition",
    "Counter": "instruments",
    "Exporter": "exporter",
    "Family": "registry",
    "Gauge": "instruments",
    "Histogram": "instruments",
    "Outlets": "targets",
    "Registry": "registry",
    "SECONDS": "definition",
    "Sink": "files",
    "exponential": "definition",
}

__getattr__, __dir__ = lazy.names(__name__, _HOMES)
