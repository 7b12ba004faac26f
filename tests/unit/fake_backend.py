"""A backend that runs nothing: the command line's tests say what it knows and look at what it was asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from callsheet.backends.base import LogLine, LogQuery, PlannedChange, Target
from callsheet.backends.log_chunks import LogChunk
from callsheet.backends.status import ContainerStatus, Phase, ReplicaStatus, RoleStatus, Status
from callsheet.errors import UserError
from callsheet.metrics.reader import ProcessMetrics


def replica(role: str, index: int, phase: Phase = "Running", **more: Any) -> ReplicaStatus:
    ready = more.pop("ready", phase == "Running")
    containers = more.pop("containers", [ContainerStatus(name=role, ready=ready)])
    return ReplicaStatus(
        role=role,
        index=index,
        host=f"127.1.0.{index + 1}",
        phase=phase,
        ready=ready,
        started=more.pop("started", 1.0),
        uptime=more.pop("uptime", 12.0),
        containers=containers,
        **more,
    )


def status(run: str = "bandit-1", phase: Phase = "Running", *replicas: ReplicaStatus, **more: Any) -> Status:
    members = list(replicas) or [replica("learner", 0), replica("actor", 0), replica("actor", 1)]
    roles = []
    for name in dict.fromkeys(member.role for member in members):
        mine = [member for member in members if member.role == name]
        roles.append(
            RoleStatus(
                name=name,
                wanted=len(mine),
                ready=sum(member.ready for member in mine),
                failed=sum(member.phase == "Failed" for member in mine),
                restarts=sum(member.restarts for member in mine),
            )
        )
    return Status(
        experiment=more.pop("experiment", "bandit"),
        run=run,
        phase=phase,
        created=more.pop("created", time.time() - 60),
        uptime=60.0,
        folder=more.pop("folder", "/results/bandit/1"),
        roles=roles,
        replicas=members,
        **more,
    )


class FakeRun:
    """Yields the given states; without a finished one it goes on until it is stopped."""

    def __init__(self, *states: Status, lines: Sequence[LogLine] = ()) -> None:
        self.states = list(states)
        self.lines = list(lines)
        self.asked: list[Any] = []
        self.stopped = threading.Event()
        self.exported: list[ProcessMetrics] = []

    @property
    def id(self) -> str:
        return self.states[0].run

    @property
    def experiment(self) -> str:
        return self.states[0].experiment

    outlives_us = False
    needs_attached_client = False
    notes = ()

    def attach(self) -> None:
        self.asked.append("attach")

    def status(self) -> Status:
        return self.states[-1]

    def watch(self, interval: float = 0.5) -> Iterator[Status]:
        yield from self.states
        if not self.states[-1].done:
            self.stopped.wait(10)
            yield self.wait()

    def wait(self, timeout: float | None = None) -> Status:
        return replace(self.states[-1], phase="Stopped", exit_code=143, reason="stopped")

    def logs(self, query: LogQuery | None = None) -> Iterator[LogLine]:
        self.asked.append(query)
        targets = query.targets if query else ()
        for line in self.lines:
            if not targets or any(target.matches(line.role, line.index) for target in targets):
                yield line

    def log_chunks(self, query: LogQuery | None = None) -> Iterator[LogChunk]:
        for line in self.logs(query):
            yield LogChunk(line.role, line.index, line.container, f"{line.text}\n")

    def metrics(self) -> list[ProcessMetrics]:
        return self.exported

    def scale(self, replicas: Mapping[str, int]) -> Status:
        self.asked.append(("scale", dict(replicas)))
        return self.status()

    def restart(self, targets: Sequence[Target]) -> list[str]:
        self.asked.append(("restart", list(targets)))
        return [r.name for r in self.status().replicas if any(t.matches(r.role, r.index) for t in targets)]

    def stop(self, *, kill: bool = False, reason: str = "", code: int | None = None) -> None:
        self.asked.append(("kill" if kill else "stop", code))
        self.stopped.set()

    def exec(self, target: Target, command: Sequence[str], *, stdin: bool = False, tty: bool = False) -> int:
        self.asked.append(("exec", target, list(command)))
        return 7

    def join(self, role: str, command: Sequence[str]) -> int:
        raise UserError("a member cannot join by hand on this backend")

    def delete(self) -> None:
        self.asked.append("delete")


class FakeBackend:
    """Knows some runs, newest first."""

    name = "local"
    on_this_machine = True

    def __init__(self, *known: FakeRun) -> None:
        self.known = list(known)

    def runs(self) -> list[Status]:
        return [run.status() for run in self.known]

    def find(self, reference: str) -> FakeRun:
        for run in self.known:
            if run.id.startswith(reference) or run.experiment == reference:
                return run
        raise UserError(f"there is no run {reference!r}", fix="`callsheet ps -a` lists them")

    def unused(self, experiment: Any) -> list[str]:
        return []

    def check(self, experiment: Any, *, base: Path) -> None:
        """Whatever it is, it would start."""

    def preview(self, experiment: Any, *, base: Path) -> list[PlannedChange]:
        return [PlannedChange("create", "Experiment", experiment.name, detail="1 a")]

    def start(self, experiment: Any, *, base: Path, source: str = "", detach: bool = False) -> FakeRun:
        return self.known[0]
