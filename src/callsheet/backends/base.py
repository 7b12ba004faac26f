"""What every backend offers, and the lazy registry that finds one by name.

A backend makes a plan real. The command line and the Python API know this protocol alone, so that the same
verbs work on a laptop and on a cluster; a backend's own dependencies are imported only when it is asked for.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from callsheet.backends.status import FINISHED, ContainerStatus, Phase, ReplicaStatus, RoleStatus, Status
from callsheet.errors import RetryError, UserError

if TYPE_CHECKING:
    # For types alone: verbs that only look at runs answer sooner without pydantic.
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
    "ReplicaStatus",
    "RoleStatus",
    "Run",
    "Status",
    "Target",
    "backend",
]


@dataclass(frozen=True, slots=True)
class Place:
    """Which cluster and which part of it; what is empty is the user's default."""

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
        """Whether that replica is meant."""
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
    """Everything when empty."""
    container: str | None = None
    follow: bool = False
    tail: int | None = None
    """Only the last lines of each container."""
    since: float | None = None
    """Only lines written in the last so many seconds."""
    grep: str | None = None
    """Only lines that match this regular expression."""

    def wants(self, role: str, index: int, container: str) -> bool:
        """Whether the lines of that container are asked for."""
        if self.container and self.container != container:
            return False
        return not self.targets or any(
            target.matches(role, index) and target.container in (None, container) for target in self.targets
        )


class Run(Protocol):
    """One run, running or finished."""

    @property
    def id(self) -> str: ...
    @property
    def experiment(self) -> str: ...
    @property
    def outlives_us(self) -> bool:
        """Whether it goes on when this program goes away."""

    @property
    def notes(self) -> Sequence[str]:
        """What is worth saying when it has been started: what that changed about a run that was there already."""

    def attach(self) -> None:
        """Do what a run needs of the program that stays with it, from now on."""

    def status(self) -> Status:
        """The run now."""

    def watch(self, interval: float = 0.5) -> Iterator[Status]:
        """The run now and whenever it changed, the last one being the finished run."""

    def wait(self, timeout: float | None = None) -> Status:
        """Block until the run has ended."""

    def logs(self, query: LogQuery = ...) -> Iterator[LogLine]:
        """Lines of output, container by container; with `follow`, as they come, until the run has ended."""

    def log_chunks(self, query: LogQuery = ...) -> Iterator[LogChunk]:
        """The same lines, many at a time: for who passes them on."""

    def metrics(self) -> list[ProcessMetrics]:
        """The newest metrics of each process that exports some; none, at next to no cost, when none does."""

    def scale(self, replicas: Mapping[str, int]) -> Status:
        """Change the size of elastic roles."""

    def restart(self, targets: Sequence[Target]) -> list[str]:
        """Stop and start replicas again; their names."""

    def stop(self, *, kill: bool = False, reason: str = "", code: int | None = None) -> None:
        """Ask every process to end; with `kill`, end it at once. Returns when asked, see `wait`.

        `reason` and `code` become the run's own, if it has none yet.
        """

    def exec(self, target: Target, command: Sequence[str], *, stdin: bool = False, tty: bool = False) -> int:
        """Run a command beside a replica with its environment; its exit code.

        `stdin` hands our input over and `tty` makes it a terminal, where the command does not run in ours anyway.
        """

    def delete(self) -> None:
        """Remove the finished run with its results."""


def wait_for_end(run: Run, timeout: float | None) -> Status:
    """Watch a run until it has ended: to the last, because whoever is watched may have something to do then."""
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

    def plan(self, experiment: Experiment, *, base: Path) -> Plan:
        """The plan as this backend would run it, nothing started. `base`: the experiment file's folder."""

    def render(self, experiment: Experiment, *, base: Path) -> str:
        """What this backend would make real, as YAML in its own words: the plan here, manifests on a cluster."""

    def check(self, experiment: Experiment, *, base: Path) -> None:
        """Raise `InvalidExperiment` with every reason why it cannot start here; nothing is started."""

    def unused(self, experiment: Experiment) -> list[str]:
        """One line for each field of the file that this backend does not act on."""

    def start(self, experiment: Experiment, *, base: Path, source: str = "", detach: bool = False) -> Run:
        """Start it. Not detached, the run stops when this process goes away. `source`: the file's text, kept."""

    def runs(self) -> list[Status]:
        """Known runs, newest first."""

    def find(self, reference: str) -> Run:
        """A run by its id, a unique part of the id's beginning, `experiment/id`, or the experiment's name."""


_BACKENDS: dict[str, tuple[str, str]] = {
    "local": ("callsheet.backends.local.backend", "LocalBackend"),
    "kubernetes": ("callsheet.backends.kubernetes.backend", "KubernetesBackend"),
}


def names() -> list[str]:
    """The backends there are, the default first."""
    return list(_BACKENDS)


def backend(name: str, place: Place | None = None) -> Backend:
    """The backend of that name; `place` says where, on backends that are in more than one place."""
    if name not in _BACKENDS:
        raise UserError(f"there is no backend {name!r}", fix=f"choose one of: {', '.join(_BACKENDS)}")
    module, attribute = _BACKENDS[name]
    make: Callable[..., Backend] = getattr(importlib.import_module(module), attribute)
    return make(place) if place else make()
