"""Metrics of the data plane: they read counters that exist anyway, so they cost nothing until they are exported."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from callsheet.metrics import Exporter, Registry

ReadCounts = Callable[[], Mapping[str, float]]


def _counters(same: str, **renamed: str) -> dict[str, str]:
    return {name: name for name in same.split()} | renamed


TRACKED: Final[dict[str, dict[str, str]]] = {
    "Transport": _counters(
        "sent_memory sent_network received_memory received_network frames_sent frames_received peers reconnects refusals"
    ),
    "TrajectoryWriter": _counters(
        "items bytes resent dropped", wait_seconds="waited", unacknowledged="in_flight"
    ),
    "TrajectoryReader": _counters(
        "items bytes writers duplicates missing stale", wait_seconds="waited", queue="waiting"
    ),
    "ParameterPublisher": _counters("version sent_bytes readers", publishes="published"),
    "ParameterReader": _counters("version", reads="snapshots", received_bytes="bytes"),
    "ReplayServer": _counters(
        "items bytes inserts samples updates evictions duplicates restored samples_per_insert insert_wait_seconds "
        "sample_wait_seconds snapshots"
    ),
    "ReplayClient": _counters(
        "sampled", inserted="insert_items", wait_seconds="waited", retries="asked_again"
    ),
    "PolicyServer": _counters("requests clients version"),
    "PolicyClient": _counters("requests retries"),
}
"""For each well-known group: its metrics, and the counters they read."""


class _Sources:
    """The objects of one group at one endpoint. When one is closed, its counts stay and the object can be freed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state: tuple[tuple[ReadCounts, ...], dict[str, float], Mapping[str, float]] = ((), {}, {})
        """The live objects, the sums over closed ones, and the values of the last closed one. Replaced as a whole,
        because another thread may read it at any time."""

    def add(self, read_counts: ReadCounts) -> None:
        with self._lock:
            live, past, last = self._state
            self._state = ((*live, read_counts), past, last)

    def untrack(self, read_counts: ReadCounts) -> None:
        with self._lock:
            live, past, _ = self._state
            if read_counts in live:
                last = dict(read_counts())
                sums = {name: past.get(name, 0) + value for name, value in last.items()}
                self._state = (tuple(read for read in live if read != read_counts), {**past, **sums}, last)

    def total(self, name: str) -> float:
        """The value of a counter."""
        live, past, _ = self._state
        return past.get(name, 0) + sum(read().get(name, 0) for read in live)

    def now(self, name: str) -> float:
        """The value of a gauge: after the last object is closed, its last value. For versions, the newest counts."""
        live, _, last = self._state
        if not live:
            return last.get(name, 0)
        values = [read().get(name, 0) for read in live]
        if name != "version":
            return sum(values)
        newest = max(values)
        return newest if newest >= 0 else math.nan  # no version yet, which no number expresses


class DataPlaneMetrics:
    """The metrics of one process, created when first used."""

    def __init__(self) -> None:
        self._registry: Registry | None = None
        self._exporter: Exporter | None = None
        self._sources: dict[tuple[str, str], _Sources] = {}

    @property
    def registry(self) -> Registry:
        """The registry; a program's own metrics go there too."""
        if self._registry is None:
            from callsheet.metrics import Registry

            self._registry = Registry()
        return self._registry

    def track(self, group: str, endpoint: str, read_counts: ReadCounts) -> Any:
        """Export these counts as metrics of a well-known group until `untrack`. Returns the group, for metrics that
        are observed explicitly."""
        from callsheet.metrics import Counter, wellknown

        metrics = getattr(wellknown, group)(self.registry, endpoint)
        sources = self._sources.setdefault((group, endpoint), _Sources())
        sources.add(read_counts)
        for attribute, name in TRACKED[group].items():
            metric = getattr(metrics, attribute)
            metric.follow(partial(sources.total if isinstance(metric, Counter) else sources.now, name))
        return metrics

    def untrack(self, read_counts: ReadCounts) -> None:
        """Stop reading these counts: their object is closed."""
        for sources in list(self._sources.values()):
            sources.untrack(read_counts)

    def start(self, environ: Mapping[str, str]) -> None:
        """Start exporting to where the environment says."""
        from callsheet.metrics import Exporter, ExportTargets

        targets = ExportTargets.from_env(environ)
        sink = None
        if targets.remote:
            from callsheet.store import open_store

            sink = open_store(targets.remote)
        self._exporter = Exporter(self.registry, targets, sink=sink)
        self._exporter.start()

    def close(self) -> None:
        """Export a last time."""
        if self._exporter is not None:
            self._exporter.close()
            self._exporter = None
