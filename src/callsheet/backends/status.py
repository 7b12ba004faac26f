"""The status of a run as plain data: what `status.json` holds and every view shows.

It is separate from the backends' protocol because the local supervisor writes it and must stay small.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from callsheet.errors import UserError

Phase = Literal["Pending", "Starting", "Running", "Suspended", "Stopping", "Succeeded", "Failed", "Stopped"]
FINISHED: tuple[Phase, ...] = ("Succeeded", "Failed", "Stopped")


@dataclass(slots=True)
class ContainerStatus:
    """One process."""

    name: str
    pid: int = 0
    """0 if it is not running."""
    restarts: int = 0
    ready: bool = False
    exit_code: int | None = None
    """Its last exit code; minus the signal's number if a signal ended it."""
    log_bytes: int = 0
    """Bytes it has written in this run."""
    log_dropped: int = 0
    """How many of them are not on disk: rotated away, or the disk was full."""
    log_error: str = ""
    last_line: str = ""


@dataclass(slots=True)
class ReplicaStatus:
    """One member of a role."""

    role: str
    index: int
    host: str
    phase: Phase
    ready: bool = False
    attempt: int = 0
    restarts: int = 0
    """Restarts after a failure."""
    reason: str = ""
    """Why it is not running or not ready, in one line."""
    started: float = 0.0
    """Wall-clock time of its latest start; 0 before the first."""
    uptime: float = 0.0
    """Seconds since then, unaffected by changes of the clock."""
    joined: bool = False
    """Started manually, with `callsheet join`."""
    containers: list[ContainerStatus] = field(default_factory=list)

    @property
    def name(self) -> str:
        """``role/index``."""
        return f"{self.role}/{self.index}"


@dataclass(slots=True)
class RoleStatus:
    """Counts of one role."""

    name: str
    wanted: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    restarts: int = 0


@dataclass(slots=True)
class Status:
    """A run at one moment: the content of `status.json`."""

    experiment: str
    run: str
    phase: Phase
    backend: str = "local"
    namespace: str = ""
    """On a cluster; empty on this machine."""
    reason: str = ""
    """Why the run is in this phase: one sentence for a person."""
    exit_code: int | None = None
    """What `callsheet run` exits with, once finished."""
    created: float = 0.0
    finished: float = 0.0
    uptime: float = 0.0
    folder: str = ""
    supervisor: int = 0
    """Process id of the supervisor."""
    generation: int = 0
    """Incremented by each scaling."""
    restarts: int = 0
    exposed: dict[str, str] = field(default_factory=dict)
    """Address of each exposed endpoint; empty while the cluster has not assigned one."""
    warnings: list[str] = field(default_factory=list)
    roles: list[RoleStatus] = field(default_factory=list)
    replicas: list[ReplicaStatus] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self.phase in FINISHED

    def to_data(self) -> dict[str, Any]:
        """As JSON-compatible data. Not with `dataclasses.asdict`, which is ten times slower: the supervisor calls this often."""
        data = _shallow(self)
        data["roles"] = [_shallow(role) for role in self.roles]
        data["replicas"] = [
            _shallow(r) | {"containers": [_shallow(c) for c in r.containers]} for r in self.replicas
        ]
        return data

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Status:
        """The inverse of `to_data`; keys of a newer version are ignored."""
        import msgspec

        return msgspec.convert(data, Status)


def status_of(data: bytes, where: str = "the status") -> Status:
    """Decode a status; a `UserError` if it is damaged."""
    try:
        return Status.from_data(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{where} is damaged: {error}", fix="delete the run, or restore the file from a copy"
        ) from None


def count_roles(names: Iterable[str], replicas: Iterable[ReplicaStatus]) -> list[RoleStatus]:
    """The counts of every role, in the file's order."""
    counts = {name: RoleStatus(name) for name in names}
    for replica in replicas:
        role = counts[replica.role]
        role.wanted += 1
        role.ready += replica.ready
        role.succeeded += replica.phase == "Succeeded"
        role.failed += replica.phase == "Failed"
        role.restarts += replica.restarts
    return list(counts.values())


def _shallow(item: Any) -> dict[str, Any]:
    return {name: getattr(item, name) for name in item.__slots__}
