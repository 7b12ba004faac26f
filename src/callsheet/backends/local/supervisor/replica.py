"""One replica: starts and stops its containers, and restarts them as the lifecycle's rules say.

The first container is the main one: when it ends, the replica has ended and the others are stopped. One of the
others that ends while the main one runs is restarted. The others start first.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Literal, Protocol

from callsheet import contract
from callsheet.backends.local.supervisor import procfs
from callsheet.backends.local.supervisor.capture import Capture, LogFile
from callsheet.backends.local.supervisor.container import ContainerRun
from callsheet.backends.local.supervisor.processes import Processes
from callsheet.backends.local.supervisor.readiness import PortWatch, watch_probe
from callsheet.backends.status import Phase, ReplicaStatus
from callsheet.lifecycle.restart import Failed, Finished, RestartRules, Tally, after_exit, after_sidecar_exit
from callsheet.plan.model import Replica, RolePlan


class Host(Protocol):
    """What a replica needs from the supervisor."""

    loop: asyncio.AbstractEventLoop
    processes: Processes
    ports: PortWatch

    def environment(self, replica: ReplicaRun, container: ContainerRun) -> dict[str, str]:
        """All variables of a container, as of now."""

    def log_path(self, role: str, index: int, container: str) -> str:
        """Where a container's output goes."""

    def changed(self) -> None:
        """The status has changed."""

    def budget_left(self) -> int | None:
        """Restarts after failures that the run may still use; None when unlimited."""

    def spend(self, restarts: int) -> None:
        """Take restarts from the run's budget."""


class ReplicaRun:
    """One replica of a role, as long as the run wants it."""

    def __init__(self, host: Host, role: RolePlan, plan: Replica) -> None:
        self.host = host
        self.role = role
        self.plan = plan
        self.phase: Phase = "Pending"
        self.reason = ""
        self.attempt = 0
        self.tally = Tally()
        self.started = 0.0
        self.started_wall = 0.0
        self.gpus: tuple[str, ...] = ()
        self.goal: Literal["run", "restart", "stop"] = "run"
        self.leaving = False
        """Scaled away: it is dropped once it has ended."""
        self._retry: asyncio.TimerHandle | None = None
        self.containers = [
            ContainerRun(
                shared, own, LogFile(host.log_path(role.name, plan.index, shared.name), host.changed)
            )
            for shared, own in zip(role.containers, plan.containers, strict=True)
        ]

    @property
    def name(self) -> str:
        """``role/index``."""
        return f"{self.role.name}/{self.plan.index}"

    @property
    def main(self) -> ContainerRun:
        """The container whose end is the replica's end."""
        return self.containers[0]

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs and nothing will be started."""
        return self.phase in ("Succeeded", "Failed", "Stopped")

    def replan(self, role: RolePlan, plan: Replica) -> None:
        """Use a new plan from the next start on. A replica that is being scaled away is wanted again."""
        self.role, self.plan = role, plan
        for container, shared, own in zip(self.containers, role.containers, plan.containers, strict=True):
            container.plan, container.own = shared, own
        self.leaving = False
        if self.goal == "stop":
            self.goal = "restart"

    def start(self) -> None:
        """Start all containers, the main one last."""
        self._retry = None
        self.phase, self.reason = "Starting", ""
        self.started, self.started_wall = time.monotonic(), time.time()
        for container in (*self.containers[1:], self.main):
            self._start_container(container)
        self._update_phase()

    def _start_container(self, container: ContainerRun) -> None:
        container.cancel_timers()
        container.ready, container.exit_code, container.error = False, None, ""
        container.started = time.monotonic()
        container.log.end_line()
        capture = container.capture = Capture(self.host.loop, container.log)
        try:
            for path in container.own.mounts.values():
                if not os.path.exists(path):
                    os.makedirs(path)
            env = self.host.environment(self, container)
            container.pid = self.host.processes.start(
                container.own.command,
                env,
                capture.write_end,
                lambda code: self._on_exit(container, code),
                self._identity(container),
            )
        except OSError as error:
            what = error.filename if isinstance(error.filename, str) else container.own.command[0]
            container.error = f"cannot start {container.own.command[0]!r}: {error.strerror or error}"
            container.error += f": {what}" if what != container.own.command[0] else ""
            container.log.write(f"callsheet: {container.error}\n".encode())
            container.timers.append(
                self.host.loop.call_later(0, lambda: self._on_exit(container, contract.EXIT_CANNOT_START))
            )
            return
        finally:
            capture.started()
        self._watch_readiness(container, env)

    def _identity(self, container: ContainerRun) -> frozenset[bytes]:
        run = container.plan.env[contract.RUN]
        return procfs.identity(run, self.role.name, self.plan.index, container.plan.name)

    def _watch_readiness(self, container: ContainerRun, env: dict[str, str]) -> None:
        def answer(ready: bool) -> None:
            container.ready = ready
            self._update_phase()

        def refused(why: str) -> None:
            container.probe_failure = why

        if container.plan.probe:
            watching = watch_probe(
                container.plan.probe, self.plan.host, env, self.host.processes, answer, refused
            )
            container.probe = self.host.loop.create_task(watching)
        elif container.ports:
            self.host.ports.wait(
                container, self.plan.host, list(container.ports.values()), lambda: answer(True)
            )
        else:
            container.ready = True

    def _update_phase(self) -> None:
        """Derive the phase from the containers."""
        if self.phase in ("Starting", "Running"):
            self.phase = "Running" if all(c.ready for c in self.containers) else "Starting"
        self.host.changed()

    def waiting_for(self) -> str:
        """Why it is not ready, in one line."""
        for container in self.containers:
            if container.pid and not container.ready:
                waited = f"({time.monotonic() - container.started:.0f} s)"
                which = f"{container.plan.name}: " if len(self.containers) > 1 else ""
                if container.plan.probe:
                    why = f": {container.probe_failure}" if container.probe_failure else ""
                    return f"{which}its readiness probe has not passed yet {waited}{why}"
                silent = self.host.ports.not_listening(container)
                ports = ", ".join(
                    f"{port} ({name})" for name, port in container.ports.items() if port in silent
                )
                return f"{which}not listening yet on {self.plan.host} port {ports} {waited}"
        return ""

    def _on_exit(self, container: ContainerRun, code: int) -> None:
        container.cancel_timers()
        self.host.ports.forget(container)
        container.pid, container.ready, container.exit_code = 0, False, code
        if container.capture:
            container.capture.finish()
            container.capture = None
        if container is self.main:
            self.phase = "Stopping"
            self._end_processes(kill=False)
        elif self.phase != "Stopping":
            self._restart_sidecar(container)
            return
        if not any(c.pid for c in self.containers):
            self._on_all_exited()
        self.host.changed()

    def _restart_sidecar(self, container: ContainerRun) -> None:
        """One of the others ended while the main one runs: it alone is restarted."""
        container.restarts += 1
        again = after_sidecar_exit(container.last_exit(), container.tally)
        container.tally = again.tally
        self.reason = f"{container.plan.name} ended ({again.why}) and will be restarted in {again.delay:g} s"
        timer = self.host.loop.call_later(again.delay, lambda: self._start_sidecar(container))
        container.timers.append(timer)
        self._update_phase()

    def _start_sidecar(self, container: ContainerRun) -> None:
        self.reason = ""
        self._start_container(container)
        self._update_phase()

    def stop(self, goal: Literal["restart", "stop"], *, kill: bool = False) -> None:
        """Stop it: SIGTERM, the grace period, SIGKILL; with `kill`, SIGKILL immediately. `goal`: what to do afterwards."""
        if self.ended:
            if goal == "restart":
                self.goal = "run"
                self._start_again()
            return
        self.goal = goal if self.goal != "stop" else "stop"
        if self._retry:
            self._retry.cancel()
            self._retry = None
        self.phase = "Stopping"
        self._end_processes(kill=kill)
        if not any(c.pid for c in self.containers):
            self._on_all_exited()
        self.host.changed()

    def _end_processes(self, *, kill: bool) -> None:
        processes = self.host.processes
        for container in self.containers:
            if not container.pid:
                container.cancel_timers()
            elif kill:
                processes.kill(container.pid)
            else:
                processes.terminate(container.pid)
                timer = self.host.loop.call_later(self.role.grace, processes.kill, container.pid)
                container.timers.append(timer)

    def _on_all_exited(self) -> None:
        """All its processes are gone: decide what comes next."""
        if self.goal == "stop":
            self.phase, self.reason = "Stopped", ""
        else:
            requested, self.goal = self.goal == "restart", "run"
            self._decide(requested=requested)
        if self.ended:
            for container in self.containers:
                container.log.close()

    def _decide(self, *, requested: bool) -> None:
        rules = RestartRules(self.role.policy, self.role.limit)
        decision = after_exit(
            self.main.last_exit(requested=requested), rules, self.tally, self.host.budget_left()
        )
        if isinstance(decision, Finished):
            self.phase, self.reason = "Succeeded", ""
        elif isinstance(decision, Failed):
            self.phase, self.reason = "Failed", decision.reason
        else:
            self.host.spend(decision.tally.failures - self.tally.failures)
            self.tally = decision.tally
            if decision.delay == 0:
                self._start_again()
                return
            self.phase = "Pending"
            self.reason = f"{decision.why}; restarts in {decision.delay:g} s"
            self._retry = self.host.loop.call_later(decision.delay, self._start_again)

    def _start_again(self) -> None:
        self.attempt += 1
        self.start()

    def status(self) -> ReplicaStatus:
        """Its status for people."""
        alive = any(c.pid for c in self.containers)
        return ReplicaStatus(
            role=self.role.name,
            index=self.plan.index,
            host=self.plan.host,
            phase=self.phase,
            ready=self.phase == "Running",
            attempt=self.attempt,
            restarts=self.tally.failures + sum(c.restarts for c in self.containers),
            reason=self.reason or self.waiting_for(),
            started=self.started_wall,
            uptime=time.monotonic() - self.started if alive else 0.0,
            containers=[c.status() for c in self.containers],
        )
