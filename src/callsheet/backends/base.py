"""What every backend offers, and the lazy registry that finds one by name.

A backend makes a plan real. The command line and the Python API use only this protocol (`cluster` adds what only
clusters have), so the same verbs work on a laptop and on a cluster. A backend is imported when it is first used.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from callsheet.backends.status import FINISHED, ContainerStatus, Phase, ReplicaStatus, RoleStatus, Status
from callsheet.errors import RetryError, UserError

if TYPE_CHECKING:
    # Only for types: verbs that inspect runs start faster without pydantic.
    from callsheet.backends.log_chunks import LogChunk
    from callsheet.metrics.reader import ProcessMetrics
    from callsheet.plan.model import Plan
    from callsheet.spec.experiment import Experiment

__all__ = [
    "FINISHED",
    "Backend",
    "ContainerStatus",
    "LogLine",
    "LogQuery",
    "Phase",
    "Place",
    "PlannedChange",
    "ReplicaStatus",
    "RoleStatus",
    "Run",
    "Status",
    "Target",
    "backend",
]


@dataclass(frozen=True, slots=True)
class Place:
    """Which cluster and namespace; empty means the user's default."""

    context: str = ""
    namespace: str = ""
    everywhere: bool = False
    """All namespaces, for verbs that list."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a verb acts on: a role, one replica, or one container of it. ``actor``, ``actor/3``, ``sim/0/policy``."""

    role: str
    index: int | None = None
    container: str | None = None

    @staticmethod
    def parse(text: str) -> Target:
        """Read ``role[/index[/container]]``."""
        role, _, rest = text.partition("/")
        index, _, container = rest.partition("/")
        if not role or (rest and not index.isdecimal()):
            raise UserError(
                f"{text!r} names no replica", fix="write ROLE, ROLE/INDEX or ROLE/INDEX/CONTAINER"
            )
        return Target(role, int(index) if index else None, container or None)

    def matches(self, role: str, index: int) -> bool:
        """Whether that replica belongs to the target."""
        return role == self.role and self.index in (None, index)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of one container's output."""

    role: str
    index: int
    container: str
    text: str


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which lines `Run.logs` yields."""

    targets: Sequence[Target] = ()
    """Empty means all."""
    container: str | None = None
    follow: bool = False
    tail: int | None = None
    """Only the last lines of each container."""
    since: float | None = None
    """Only lines written in the last `since` seconds."""
    grep: str | None = None
    """Only lines that match this regular expression."""

    def wants(self, role: str, index: int, container: str) -> bool:
        """Whether the query selects that container."""
        if self.container and self.container != container:
            return False
        return not self.targets or any(
            target.matches(role, index) and target.container in (None, container) for target in self.targets
        )


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """What starting an experiment would do to one object."""

    action: Literal["create", "change", "replace", "delete"]
    kind: str
    name: str
    detail: str = ""
    diff: Sequence[str] = ()
    """How the object would change, as lines of a unified diff."""


class Run(Protocol):
    """One run, running or finished."""

    @property
    def id(self) -> str: ...
    @property
    def experiment(self) -> str: ...
    @property
    def outlives_us(self) -> bool:
        """Whether it keeps running when this program exits."""

    @property
    def needs_attached_client(self) -> bool:
        """Whether success, deadline and restart limits apply only while a client is attached."""

    @property
    def notes(self) -> Sequence[str]:
        """What to tell the user after the start, such as changes to a run that already existed."""

    def attach(self) -> None:
        """Apply the lifecycle rules from now on, if the run needs an attached client."""

    def status(self) -> Status:
        """The current status."""

    def watch(self, interval: float = 0.5) -> Iterator[Status]:
        """The current status, then a new one after each change; the last is that of the finished run."""

    def wait(self, timeout: float | None = None) -> Status:
        """Block until the run has ended."""

    def logs(self, query: LogQuery = ...) -> Iterator[LogLine]:
        """Lines of output, container by container; with `follow`, as they are written, until the run has ended."""

    def log_chunks(self, query: LogQuery = ...) -> Iterator[LogChunk]:
        """The same lines, many at a time."""

    def metrics(self) -> list[ProcessMetrics]:
        """The newest metrics of each process that exports some."""

    def scale(self, replicas: Mapping[str, int]) -> Status:
        """Change the size of elastic roles."""

    def restart(self, targets: Sequence[Target]) -> list[str]:
        """Restart replicas; their names."""

    def stop(self, *, kill: bool = False, reason: str = "", code: int | None = None) -> None:
        """Ask every process to stop; with `kill`, kill it. Does not wait for the end, see `wait`.

        `reason` and `code` become the run's own, if it has none yet.
        """

    def exec(self, target: Target, command: Sequence[str], *, stdin: bool = False, tty: bool = False) -> int:
        """Run a command with a replica's environment; its exit code.

        `stdin` passes our input on and `tty` allocates a terminal, if the command does not run in ours anyway.
        """

    def join(self, role: str, command: Sequence[str]) -> int:
        """Run a command in this terminal as one more replica of a role; its exit code. `UserError` if unsupported."""

    def delete(self) -> None:
        """Remove the finished run with its results."""


def wait_for_end(run: Run, timeout: float | None) -> Status:
    """Watch a run until it has ended, to the last status: the backend may have something to do then."""
    limit = None if timeout is None else time.monotonic() + timeout
    status = None
    for status in run.watch():
        if not status.done and limit is not None and time.monotonic() > limit:
            raise RetryError(
                f"the run {run.id} is still {status.phase} after {timeout:g} s", fix="wait longer"
            )
    assert status is not None
    return status


class Backend(Protocol):
    """What makes a plan real."""

    name: str
    on_this_machine: bool
    """Whether replicas are processes on this machine: they share its files and Python, and need no image."""

    def plan(self, experiment: Experiment, *, base: Path) -> Plan:
        """The plan as this backend would run it. `base` is the experiment file's folder."""

    def render(self, experiment: Experiment, *, base: Path) -> str:
        """What this backend would run, as YAML: the plan on this machine, manifests on a cluster."""

    def check(self, experiment: Experiment, *, base: Path) -> None:
        """Raise `InvalidExperiment` with every reason why it cannot start here."""

    def unused(self, experiment: Experiment) -> list[str]:
        """One line for each field of the file that this backend ignores."""

    def preview(self, experiment: Experiment, *, base: Path) -> list[PlannedChange]:
        """What `start` would change, without changing it; empty if nothing."""

    def start(self, experiment: Experiment, *, base: Path, source: str = "", detach: bool = False) -> Run:
        """Start it. If not detached, the run stops when this process exits. `source` is the file's text, to be stored."""

    def runs(self) -> list[Status]:
        """All known runs, newest first."""

    def find(self, reference: str) -> Run:
        """A run by its id, the beginning of one, `experiment/id`, or the experiment's name."""


_BACKENDS: dict[str, tuple[str, str]] = {
    "local": ("callsheet.backends.local.backend", "LocalBackend"),
    "kubernetes": ("callsheet.backends.kubernetes.backend", "KubernetesBackend"),
}
CLUSTERS = ("kubernetes",)
"""The backends that are a `cluster.ClusterBackend`, known without importing them."""


def names() -> list[str]:
    """All backends, the default first."""
    return list(_BACKENDS)


def backend(name: str, place: Place | None = None) -> Backend:
    """The backend of that name; `place` says where, for backends that have a choice."""
    if name not in _BACKENDS:
        raise UserError(f"there is no backend {name!r}", fix=f"choose one of: {', '.join(_BACKENDS)}")
    module, attribute = _BACKENDS[name]
    make: Callable[..., Backend] = getattr(importlib.import_module(module), attribute)
    return make(place) if place else make()
