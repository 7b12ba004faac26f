"""A run's status in the shape that Symphony's describe calls answer with."""

from __future__ import annotations

from typing import TypedDict

from callsheet.backends.base import ContainerStatus, ReplicaStatus, Status


class Description(TypedDict):
    """One process, in Symphony's words."""

    Ready: bool
    Restarts: int
    State: str


def describe(status: Status) -> dict[str | None, dict[str, Description]]:
    """Every process by its group; processes in no group are under None."""
    found: dict[str | None, dict[str, Description]] = {}
    for replica in status.replicas:
        alone = [container.name for container in replica.containers] == [replica.role]
        place = found.setdefault(None if alone else replica.role, {})
        for container in replica.containers:
            place[container.name] = _one(replica, container, alone)
    return found


def _one(replica: ReplicaStatus, container: ContainerStatus, alone: bool) -> Description:
    restarts = replica.restarts if alone else max(container.restarts, replica.restarts)
    return {"Ready": container.ready, "Restarts": restarts, "State": replica.phase}
