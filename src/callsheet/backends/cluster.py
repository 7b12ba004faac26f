"""What a backend on a cluster can do besides: inspect the cluster, copy files, forward ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from callsheet.backends.base import Backend, Run, Target


@dataclass(slots=True)
class Node:
    """A machine of the cluster."""

    name: str
    ready: bool
    cpu: str
    memory: str
    gpus: int
    gpus_used: int | None
    """None if we may not list other users' pods."""
    labels: dict[str, str] = field(default_factory=dict)
    """Without those that Kubernetes itself sets."""
    taints: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of the cluster."""

    what: str
    good: bool
    said: str
    fix: str = ""
    needed: bool = True
    """Whether runs fail without it; otherwise it is only worth knowing."""


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """An event that the cluster recorded about one of a run's objects."""

    time: str
    """In ISO 8601; may be empty."""
    type: str
    object: str
    """``Kind/name``."""
    reason: str
    count: int
    message: str


class ClusterRun(Run, Protocol):
    """A run on a cluster."""

    def events(self) -> list[ClusterEvent]:
        """What the cluster recorded about the run's objects, oldest first."""

    def endpoints(self) -> dict[str, tuple[str, int]]:
        """Role and port of each endpoint."""

    def forward(
        self, target: Target, remote: int, local: int | None, tell: Callable[[str], None]
    ) -> Forwarded:
        """Forward a port of this machine to a replica, in the background; `tell` gets its errors."""

    def copy_from(self, target: Target, source: str, destination: Path) -> int:
        """Copy a file or folder from a replica; the number of files."""

    def copy_to(self, target: Target, source: Path, destination: str) -> int:
        """Copy a file or folder to a replica; the number of files."""


class Forwarded(Protocol):
    """A forwarded port."""

    @property
    def local(self) -> int:
        """The port on this machine."""


@runtime_checkable
class ClusterBackend(Backend, Protocol):
    """A backend whose runs are on a cluster."""

    def find(self, reference: str) -> ClusterRun:
        """A run, as `Backend.find` finds it."""

    def nodes(self) -> list[Node]:
        """The cluster's nodes."""

    def examine(self) -> Iterator[Finding]:
        """Check everything that a run needs, in the order in which it would fail."""

    def role_manifest(self) -> dict[str, Any]:
        """The Role with the permissions that a user needs; no cluster is asked."""

    def make_key(self, experiment: str) -> tuple[str, bool]:
        """Create the Secret with the key of an experiment's next run; its name, and False if the current run has one."""
