"""One container of one replica on this machine: a process, its output, and what was to happen to it."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field

from callsheet.backends.local.supervisor.capture import Capture, LogFile
from callsheet.backends.status import ContainerStatus
from callsheet.plan.model import ContainerPlan, ReplicaContainer


@dataclass(slots=True, eq=False)
class ContainerRun:
    """One container of one replica and its process, if it has one now."""

    plan: ContainerPlan
    own: ReplicaContainer
    log: LogFile
    pid: int = 0
    started: float = 0.0
    ready: bool = False
    restarts: int = 0
    exit_code: int | None = None
    error: str = ""
    no_because: str = ""
    """Why its probe last said no."""
    capture: Capture | None = None
    probe: asyncio.Task[None] | None = None
    timers: list[asyncio.TimerHandle] = field(default_factory=list)

    @property
    def ports(self) -> dict[str, int]:
        """Port by endpoint, as this replica has them."""
        return self.plan.ports | self.own.ports

    def forget_timers(self) -> None:
        """What was to happen to the old process must not happen to the next."""
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        if self.probe:
            self.probe.cancel()
            self.probe = None

    def status(self) -> ContainerStatus:
        """What a person sees of it."""
        return ContainerStatus(
            name=self.plan.name,
            pid=self.pid,
            restarts=self.restarts,
            ready=self.ready,
            exit_code=self.exit_code,
            log_bytes=self.log.written,
            log_dropped=self.log.dropped,
            log_error=self.log.error,
            last_line=self.log.last_line(),
        )


def describe_exit(code: int | None) -> str:
    """How a process ended, for a person: ``exit code 3`` or ``killed by SIGKILL``."""
    if code is None:
        return "still running"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def shell_code(code: int) -> int:
    """The exit code a shell would show: 128 + n for signal n."""
    return code if code >= 0 else 128 - code
