"""Lets the metrics follow what the parts of the data plane count anyway: nothing is spent until somebody looks."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from callsheet.metrics import Exporter, Registry

Counts = Callable[[], Mapping[str, float]]

TRACKED: Final[dict[str, dict[str, str]]] = {
    "Transport": {
        name: name
        for name in (
            "sent_memory",
            "sent_network",
            "received_memory",
            "received_network",
            "frames_sent",
            "frames_received",
            "peers",
            "reconnects",
            "refusals",
        )
    },
    "TrajectoryWriter": {
        "items": "items",
        "bytes": "bytes",
        "wait_seconds": "waited",
        "unacknowledged": "in_flight",
        "resent": "resent",
        "dropped": "dropped",
    },
    "TrajectoryReader": {
        "items": "items",
        "bytes": "bytes",
        "wait_seconds": "waited",
        "queue": "waiting",
        "writers": "writers",
        "duplicates": "duplicates",
        "missing": "missing",
        "stale": "stale",
    },
    "ParameterPublisher": {
        "publishes": "published",
        "version": "version",
        "sent_bytes": "sent_bytes",
        "readers": "readers",
    },
    "ParameterReader": {"reads": "snapshots", "version": "version", "received_bytes": "bytes"},
    "ReplayServer": {
        "items": "items",
        "bytes": "bytes",
        "inserts": "inserts",
        "samples": "samples",
        "updates": "updates",
        "evictions": "evictions",
        "duplicates": "duplicates",
        "restored": "restored",
        "samples_per_insert": "samples_per_insert",
        "insert_wait_seconds": "insert_wait_seconds",
        "sample_wait_seconds": "sample_wait_seconds",
        "snapshots": "snapshots",
    },
    "ReplayClient": {
        "inserted": "insert_items",
        "sampled": "sampled",
        "wait_seconds": "waited",
        "retries": "asked_again",
    },
    "PolicyServer": {"requests": "requests", "clients": "clients", "version": "version"},
    "PolicyClient": {"requests": "requests", "retries": "retries"},
}
"""For each well-known group: its metrics, and the counts that they follow."""


class _Sources:
    """The parts of one group at one endpoint. What those have counted that ended stays; they themselves do not."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._state: tuple[tuple[Counts, ...], dict[str, float], Mapping[str, float]] = ((), {}, {})
        """Those that live, the sums of those that ended, and the last of them: replaced as a whole, for a thread reads
        it at any time."""

    def add(self, counts: Counts) -> None:
        with self._changing:
            live, past, last = self._state
            self._state = ((*live, counts), past, last)

    def untrack(self, counts: Counts) -> None:
        with self._changing:
            live, past, _ = self._state
            if counts in live:
                last = dict(counts())
                sums = {name: past.get(name, 0) + value for name, value in last.items()}
                self._state = (tuple(one for one in live if one != counts), {**past, **sums}, last)

    def total(self, name: str) -> float:
        """Of a counter."""
        live, past, _ = self._state
        return past.get(name, 0) + sum(one().get(name, 0) for one in live)

    def now(self, name: str) -> float:
        """Of a gauge: when nobody lives, as it was last. Of versions the newest counts."""
        live, _, last = self._state
        if not live:
            return last.get(name, 0)
        values = [one().get(name, 0) for one in live]
        if name != "version":
            return sum(values)
        newest = max(values)
        return newest if newest >= 0 else math.nan  # none yet, which no number says


class DataPlaneMetrics:
    """The metrics of one process, made when the first part asks for them."""

    def __init__(self) -> None:
        self._registry: Registry | None = None
        self._exporter: Exporter | None = None
        self._sources: dict[tuple[str, str], _Sources] = {}

    @property
    def registry(self) -> Registry:
        """Where metrics are made; a program's own go there too."""
        if self._registry is None:
            from callsheet.metrics import Registry

            self._registry = Registry()
        return self._registry

    def track(self, group: str, endpoint: str, counts: Counts) -> Any:
        """Export these counts as a well-known group's metrics, until they have `untrack`; the group, for what must be
        observed by hand."""
        from callsheet.metrics import Counter, wellknown

        made = getattr(wellknown, group)(self.registry, endpoint)
        sources = self._sources.setdefault((group, endpoint), _Sources())
        sources.add(counts)
        for attribute, name in TRACKED[group].items():
            metric = getattr(made, attribute)
            metric.follow(partial(sources.total if isinstance(metric, Counter) else sources.now, name))
        return made

    def untrack(self, counts: Counts) -> None:
        """These counts change no more: their part is closed, and need not be kept for them."""
        for sources in list(self._sources.values()):
            sources.untrack(counts)

    def start(self, environ: Mapping[str, str]) -> None:
        """Export, where the experiment says where to."""
        from callsheet.metrics import Exporter, ExportTargets

        targets = ExportTargets.from_env(environ)
        sink = None
        if targets.remote:
            from callsheet.store import open_store

            sink = open_store(targets.remote)
        self._exporter = Exporter(self.registry, targets, sink=sink)
        self._exporter.start()

    def close(self) -> None:
        """Write the last line."""
        if self._exporter is not None:
            self._exporter.close()
            self._exporter = None
