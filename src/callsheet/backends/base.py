"""What every backend offers, and the lazy registry that finds one by name.

A backend makes a plan real. The command line and the Python API know this protocol alone, so that the same
verbs work on a laptop and on a cluster; a backend's own dependencies are imported only when it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from callsheet.errors import UserError

if TYPE_CHECKING:
    # For types alone: verbs that only look at runs answer sooner without pydantic.
    from callsheet.plan.model import Plan
    from callsheet.spec.experiment import Experiment

Phase = Literal["Pending", "Starting", "Running", "Suspended", "Stopping", "Succeeded", "Failed", "Stopped"]
FINISHED: tuple[Phase, ...] = ("Succeeded", "Failed", "Stopped")


@dataclass(slots=True)
class ContainerStatus:
    """One process."""

    name: str
    pid: int = 0
    """0 when it does not run now."""
    restarts: int = 0
    ready: bool = False
    exit_code: int | None = None
    """How it last ended; minus the signal's number when a signal ended it."""
    log_bytes: int = 0
    """Bytes it has written in this run."""
    log_dropped: int = 0
    """Bytes of them that are no longer on disk: rotated away, or the disk was full."""
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
    """Restarts after failures."""
    reason: str = ""
    """Why it is not running or not ready, in one line."""
    started: float = 0.0
    """Wall-clock time of its latest start; 0 before the first."""
    uptime: float = 0.0
    """Seconds since then, unaffected by changes of the clock."""
    joined: bool = False
    """Started by hand with `callsheet join`."""
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
    """A run at one moment: what `status.json` holds."""

    experiment: str
    run: str
    phase: Phase
    backend: str = "local"
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
    """Counts changes of scale."""
    restarts: int = 0
    exposed: dict[str, str] = field(default_factory=dict)
    """Address of each exposed endpoint."""
    warnings: list[str] = field(default_factory=list)
    roles: list[RoleStatus] = field(default_factory=list)
    replicas: list[ReplicaStatus] = field(default_factory=list)

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self.phase in FINISHED

    def to_data(self) -> dict[str, Any]:
        """As JSON-compatible data."""
        return asdict(self)

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> Status:
        """The inverse of `to_data`; keys of a newer version are ignored."""
        return Status(
            **_known(Status, data)
            | {
                "roles": [RoleStatus(**_known(RoleStatus, r)) for r in data.get("roles", [])],
                "replicas": [
                    ReplicaStatus(
                        **_known(ReplicaStatus, r)
                        | {
                            "containers": [
                                ContainerStatus(**_known(ContainerStatus, c)) for c in r["containers"]
                            ]
                        }
                    )
                    for r in data.get("replicas", [])
                ],
            }
        )


def _known(cls: type, data: Mapping[str, Any]) -> dict[str, Any]:
    names: Mapping[str, Any] = cls.__dataclass_fields__  # type: ignore[attr-defined]
    return {key: value for key, value in data.items() if key in names}


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


class Run(Protocol):
    """One run, running or finished."""

    @property
    def id(self) -> str: ...
    @property
    def experiment(self) -> str: ...
    def status(self) -> Status:
        """The run now."""

    def watch(self, interval: float = 0.5) -> Iterator[Status]:
        """The run now and whenever it changed, the last one being the finished run."""

    def wait(self, timeout: float | None = None) -> Status:
        """Block until the run has ended."""

    def logs(self, query: LogQuery = ...) -> Iterator[LogLine]:
        """Lines of output, container by container; with `follow`, as they come, until the run has ended."""

    def scale(self, replicas: Mapping[str, int]) -> Status:
        """Change the size of elastic roles."""

    def restart(self, targets: Sequence[Target]) -> list[str]:
        """Stop and start replicas again; their names."""

    def stop(self, *, kill: bool = False, reason: str = "") -> None:
        """Ask every process to end; with `kill`, end it at once. Returns when asked, see `wait`."""

    def exec(self, target: Target, command: Sequence[str]) -> int:
        """Run a command beside a replica with its environment; its exit code."""

    def delete(self) -> None:
        """Remove the finished run with its results."""


class Backend(Protocol):
    """What makes a plan real."""

    name: str

    def plan(self, experiment: Experiment, *, base: Path) -> Plan:
        """The plan as this backend would run it, nothing started. `base`: the experiment file's folder."""

    def render(self, experiment: Experiment, *, base: Path) -> str:
        """What this backend would make real, as YAML in its own words: the plan here, manifests on a cluster."""

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
}


def names() -> list[str]:
    """The backends there are, the default first."""
    return list(_BACKENDS)


def backend(name: str) -> Backend:
    """The backend of that name."""
    if name not in _BACKENDS:
        raise UserError(f"there is no backend {name!r}", fix=f"choose one of: {', '.join(_BACKENDS)}")
    module, attribute = _BACKENDS[name]
    make: Callable[[], Backend] = getattr(importlib.import_module(module), attribute)
    return make()
