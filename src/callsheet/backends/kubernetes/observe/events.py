"""Events of the cluster: what `callsheet events` shows."""

from __future__ import annotations

from collections.abc import Container, Iterable

from callsheet.backends.cluster import ClusterEvent
from callsheet.backends.kubernetes.client.api import Object


def cluster_events(events: Iterable[Object], uids: Container[str]) -> list[ClusterEvent]:
    """The events about these objects, oldest first."""
    chosen = [event for event in events if (event.get("involvedObject") or {}).get("uid") in uids]
    return sorted(map(_event, chosen), key=lambda event: event.time)


def _event(event: Object) -> ClusterEvent:
    involved = event.get("involvedObject") or {}
    return ClusterEvent(
        time=event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or "",
        type=event.get("type", ""),
        object=f"{involved.get('kind', '')}/{involved.get('name', '')}",
        reason=event.get("reason", ""),
        count=event.get("count") or 1,
        message=event.get("message", ""),
    )
