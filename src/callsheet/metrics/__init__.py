"""Counters, gauges and histograms of a process, and their way out: a Prometheus port, JSON lines, TensorBoard files.

```python
registry = Registry()
steps = registry.counter("steps", "Environment steps.", shown=True)
with Exporter(registry):
    steps.add(64)
```
"""

from __future__ import annotations

from callsheet.metrics.definition import BYTES, COUNTS, SECONDS, exponential
from callsheet.metrics.exporter import Exporter
from callsheet.metrics.files import Sink
from callsheet.metrics.instruments import Counter, Gauge, Histogram
from callsheet.metrics.outlets import Outlets
from callsheet.metrics.registry import Family, Registry

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
