"""Lets the metrics follow what the parts of the data plane count anyway: nothing is spent until somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from callsheet.metrics import Exporter, Registry

Counts = Callable[[], Mapping[str, float]]

FOLLOWED: Final[dict[str, dict[str, str]]] = {
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


class Measuring:
    """The metrics of one process, made when the first part asks for them."""

    def __init__(self) -> None:
        self._registry: Registry | None = None
        self._exporter: Exporter | None = None
        self._parts: dict[tuple[str, str], list[Counts]] = {}

    @property
    def registry(self) -> Registry:
        """Where metrics are made; a program's own go there too."""
        if self._registry is None:
            from callsheet.metrics import Registry

            self._registry = Registry()
        return self._registry

    def follow(self, group: str, endpoint: str, counts: Counts) -> Any:
        """Export these counts as a well-known group's metrics; the group, for what must be observed by hand."""
        from callsheet.metrics import wellknown

        made = getattr(wellknown, group)(self.registry, endpoint)
        parts = self._parts.setdefault((group, endpoint), [])
        parts.append(counts)
        for attribute, name in FOLLOWED[group].items():
            getattr(made, attribute).follow(lambda name=name: sum(one().get(name, 0) for one in parts))
        return made

    def start(self, environ: Mapping[str, str]) -> None:
        """Export, where the experiment says where to."""
        from callsheet.metrics import Exporter, Outlets

        outlets = Outlets.from_env(environ)
        sink = None
        if outlets.remote:
            from callsheet.store import open_store

            sink = open_store(outlets.remote)
        self._exporter = Exporter(self.registry, outlets, sink=sink)
        self._exporter.start()

    def close(self) -> None:
        """Write the last line."""
        if self._exporter is not None:
            self._exporter.close()
            self._exporter = None
