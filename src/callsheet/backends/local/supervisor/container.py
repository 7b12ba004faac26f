"""One container of one replica on this machine: its process, its output and its pending timers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from callsheet.backends.local.supervisor.capture import Capture, LogFile
from callsheet.backends.status import ContainerStatus
from callsheet.lifecycle.restart import Ended, Tally, describe_exit, shell_code
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
    """How often it alone was restarted, beside its main container."""
    tally: Tally = field(default_factory=Tally)
    exit_code: int | None = None
    error: str = ""
    """Why its program could not be started."""
    probe_failure: str = ""
    """Why its probe last failed."""
    capture: Capture | None = None
    probe: asyncio.Task[None] | None = None
    timers: list[asyncio.TimerHandle] = field(default_factory=list)

    @property
    def ports(self) -> dict[str, int]:
        """Port by endpoint, as this replica has them."""
        return self.plan.ports | self.own.ports

    def last_exit(self, *, requested: bool = False) -> Ended:
        """How its process ended."""
        code = self.exit_code or 0
        how = self.error or describe_exit(code)
        return Ended(shell_code(code), how, time.monotonic() - self.started, requested=requested)

    def cancel_timers(self) -> None:
        """What was due for the old process must not happen to the next."""
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
