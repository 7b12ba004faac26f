"""The run as a whole: which replicas there are, which phase it is in, and what its status says."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from callsheet import contract
from callsheet.backends.local.supervisor.container import ContainerRun
from callsheet.backends.local.supervisor.gpus import GpuPool
from callsheet.backends.local.supervisor.processes import Processes
from callsheet.backends.local.supervisor.readiness import PortWatch
from callsheet.backends.local.supervisor.references import resolve_references
from callsheet.backends.local.supervisor.replica import ReplicaRun
from callsheet.backends.local.supervisor.results import Results
from callsheet.backends.status import FINISHED, Phase, ReplicaStatus, Status, count_roles
from callsheet.errors import RetryError, UserError
from callsheet.lifecycle.restart import shell_code
from callsheet.lifecycle.verdict import (
    Failure,
    RoleCount,
    RunRules,
    Verdict,
    all_started,
    success_roles,
    verdict,
)
from callsheet.plan.model import Plan, Replica, RolePlan, without_member

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Member:
    """A replica that somebody started by hand."""

    host: str
    ask_to_leave: Callable[[], None]


class RunState:
    """Everything that the supervisor knows of the run; whether it continues is for the lifecycle's rules to say."""

    def __init__(self, plan: Plan, folder: str, gpus: GpuPool, on_change: Callable[[], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self.processes = Processes(self.loop)
        self.ports = PortWatch(self.loop)
        self.plan = plan
        self.address_book = plan.address_book
        self.folder = folder
        self.gpus = gpus
        self.generation = 0
        self.version = 0
        self.replicas: dict[Key, ReplicaRun] = {}
        self.joined: dict[Key, Member] = {}
        self.waits_for_members = True
        self.sizes: dict[str, int] = {}
        """How many replicas each role should have, without members that joined by hand."""
        self.outcome: Verdict | None = None
        """How the run ends, once its last process has exited."""
        self.finished = 0.0
        self.on_all_ended: Callable[[], None] = self.finish
        """Called once when the last process has exited; whoever sets it calls `finish` afterwards."""
        self.results: Results | None = None
        """The copy of the run's folder, when its storage is in a cloud."""
        self._all_exited = False
        self.restarts = 0
        self._on_change = on_change
        self._started = time.monotonic()
        self._created = time.time()
        self._base = {
            name: value for name, value in os.environ.items() if not name.startswith(contract.PREFIX)
        }
        self._asks_for_gpus = any(c.gpus for role in plan.roles for c in role.containers)
        self._evaluating = False
        self._was_running = False

    def start(self) -> None:
        """Start every replica of the plan."""
        wanted = self._wanted(self.plan)
        self._assign_gpus(wanted)
        self._set_sizes(wanted)
        for role, replica in wanted.values():
            self._add(role, replica)
        if self.plan.deadline is not None:
            self.loop.call_later(self.plan.deadline, self.changed)

    @staticmethod
    def _wanted(plan: Plan) -> dict[Key, tuple[RolePlan, Replica]]:
        return {
            (role.name, replica.index): (role, replica) for role in plan.roles for replica in role.replicas
        }

    def _assign_gpus(self, wanted: Mapping[Key, tuple[RolePlan, Replica]]) -> None:
        needed = {
            (*key, container.name): container.gpus
            for key, (role, _) in wanted.items()
            for container in role.containers
            if container.gpus
        }
        self.gpus.assign(needed)

    def _add(self, role: RolePlan, plan: Replica) -> None:
        replica = self.replicas[role.name, plan.index] = ReplicaRun(self, role, plan)
        replica.start()

    def apply(self, plan: Plan, generation: int) -> None:
        """Apply a plan with other sizes: start new replicas, stop those that are no longer wanted."""
        self._must_be_current(generation)
        wanted = self._wanted(plan)
        for member in self.joined:
            wanted.pop(member, None)
        self._assign_gpus(wanted)
        self.generation += 1
        self.plan, self.address_book = plan, plan.address_book
        self._set_sizes(wanted)
        for key, leaving in self.replicas.items():
            if key not in wanted:
                leaving.leaving = True
                leaving.stop("stop")
        self._drop_removed()
        for key, (role, replica) in wanted.items():
            current = self.replicas.get(key)
            if current is None:
                self._add(role, replica)
            else:
                current.replan(role, replica)
        self.changed()

    def _set_sizes(self, wanted: Mapping[Key, tuple[RolePlan, Replica]]) -> None:
        self.sizes = {role.name: 0 for role in self.plan.roles}
        for role, _ in wanted:
            self.sizes[role] += 1

    def _drop_removed(self) -> None:
        for key in [key for key, replica in self.replicas.items() if replica.leaving and replica.ended]:
            del self.replicas[key]

    def join(
        self, plan: Plan, generation: int, role: str, index: int, ask_to_leave: Callable[[], None]
    ) -> dict[str, str]:
        """Apply a plan with one more member, which somebody starts by hand; returns its environment."""
        self._must_be_current(generation)
        planned = plan.role(role)
        member = planned.replicas[-1]
        env = resolve_references(planned.containers[0].env_refs, plan.workdir)
        env |= plan.environment(planned, member, 0) | {contract.ATTEMPT: "0"}
        self.generation += 1
        self.joined[role, index] = Member(member.host, ask_to_leave)
        self.address_book = plan.address_book
        self.changed()
        return env

    def leave(self, role: str, index: int) -> None:
        """A member that was started by hand has left."""
        if self.joined.pop((role, index), None) is not None:
            self.generation += 1
            self.address_book = without_member(self.address_book, role, index)
            self.changed()

    def _must_be_current(self, generation: int) -> None:
        if self.outcome:
            raise UserError(
                f"the run is {self.phase}: {self.outcome.reason or 'it is ending'}", fix="start a new run"
            )
        if generation != self.generation:
            raise RetryError("the run was scaled by someone else at the same moment", fix="try again")

    def stop(self, outcome: Verdict, *, kill: bool = False) -> None:
        """End the run; the first outcome stays."""
        self.outcome = self.outcome or outcome
        if kill and self.results:
            self.results.abandon()
        for replica in self.replicas.values():
            replica.stop("stop", kill=kill)
        for member in self.joined.values():
            member.ask_to_leave()
        patience = 0.0 if kill else max((self.plan.role(role).grace for role, _ in self.joined), default=0.0)
        self.loop.call_later(patience, self._stop_waiting_for_members)
        self.changed()

    def _stop_waiting_for_members(self) -> None:
        """The grace period of members that joined by hand is over."""
        self.waits_for_members = False
        self.changed()

    def budget_left(self) -> int | None:
        """Restarts after failures that the run may still use; None when unlimited."""
        return None if self.plan.max_restarts is None else self.plan.max_restarts - self.restarts

    def spend(self, restarts: int) -> None:
        """Take restarts from the run's budget."""
        self.restarts += restarts

    def changed(self) -> None:
        """Evaluate the run's state once, after the current event."""
        self.version += 1
        self._on_change()
        if not self._evaluating:
            self._evaluating = True
            self.loop.call_soon(self._evaluate)

    def _evaluate(self) -> None:
        self._evaluating = False
        self._drop_removed()
        if self.outcome is None and (outcome := self._verdict()):
            self.stop(outcome)
        members_left = not self.joined or not self.waits_for_members
        if (
            self.outcome
            and not self.finished
            and members_left
            and all(r.ended for r in self.replicas.values())
        ):
            self._end()

    def _end(self) -> None:
        """The last process has exited; the run ends when its results are copied."""
        if not self._all_exited:
            self._all_exited = True
            self.processes.end_all(self.plan.run)
            self.gpus.assign({})
            self.on_all_ended()

    def finish(self) -> None:
        """The run has ended."""
        self.finished = time.time()
        self.version += 1
        self._on_change()

    def _verdict(self) -> Verdict | None:
        policies = {role.name: role.policy for role in self.plan.roles}
        rules = RunRules(
            success_roles(self.plan.success, policies), self.plan.max_restarts, self.plan.deadline
        )
        members: dict[str, list[ReplicaRun]] = {name: [] for name in policies}
        for replica in self.replicas.values():
            if not replica.leaving:
                members[replica.role.name].append(replica)
        counts = {name: _count(replicas) for name, replicas in members.items()}
        return verdict(rules, counts, self.restarts, time.monotonic() - self._started)

    @property
    def phase(self) -> Phase:
        """The run's phase."""
        if self.outcome:
            return self.outcome.phase if self.finished else "Stopping"
        self._was_running = self._was_running or all_started(
            r.phase for r in self.replicas.values() if not r.leaving
        )
        return "Running" if self._was_running else "Starting"

    def environment(self, replica: ReplicaRun, container: ContainerRun) -> dict[str, str]:
        """All variables of a container. The plan's win over those from references, which win over the user's own."""
        shared = next(
            c for c in self.plan.role(replica.role.name).containers if c.name == container.plan.name
        )
        env = self._base | resolve_references(container.plan.env_refs, self.plan.workdir) | shared.env
        env |= container.own.env
        env[contract.ATTEMPT] = str(replica.attempt)
        if self._asks_for_gpus:
            devices = self.gpus.of(replica.role.name, replica.plan.index, container.plan.name)
            env[contract.GPUS] = ",".join(devices)
        return env

    def log_path(self, role: str, index: int, container: str) -> str:
        """Where a container's output goes."""
        return os.path.join(self.folder, "logs", role, str(index), f"{container}.log")

    def status(self, *, ended: bool = False) -> Status:
        """The run's status; with `ended`, as it will be when everything is written."""
        replicas = [replica.status() for replica in self.replicas.values()]
        replicas += [
            ReplicaStatus(
                role, index, member.host, "Running", ready=True, joined=True, reason="joined by hand"
            )
            for (role, index), member in self.joined.items()
        ]
        roles = count_roles(self.sizes, replicas)
        for counted in roles:
            counted.wanted = self.sizes[counted.name] + sum(role == counted.name for role, _ in self.joined)
        phase = self.outcome.phase if ended and self.outcome else self.phase
        reason = self.outcome.reason if self.outcome else ""
        if self._all_exited and self.results and phase not in FINISHED:
            reason += f"; its logs are being copied to {self.results.url}"
        return Status(
            experiment=self.plan.experiment,
            run=self.plan.run,
            phase=phase,
            reason=reason,
            exit_code=self.outcome.code if self.outcome and phase in FINISHED else None,
            created=self._created,
            finished=self.finished or (time.time() if ended else 0.0),
            uptime=time.monotonic() - self._started,
            folder=self.folder,
            supervisor=os.getpid(),
            generation=self.generation,
            restarts=self.restarts,
            exposed=self._exposed(),
            warnings=self._warnings(),
            roles=roles,
            replicas=replicas,
        )

    def _exposed(self) -> dict[str, str]:
        return {
            endpoint: f"{replica.host}:{(container.ports | own.ports)[endpoint]}"
            for role in self.plan.roles
            for replica in role.replicas[:1]
            for container, own in zip(role.containers, replica.containers, strict=True)
            for endpoint in container.exposed
        }

    def _warnings(self) -> list[str]:
        logs = [(r.name, c.log) for r in self.replicas.values() for c in r.containers]
        full = [f"{name}: log not written: {log.error}" for name, log in logs if log.error]
        dropped = [
            f"{name}: {log.dropped:,} bytes of its log were dropped" for name, log in logs if log.dropped
        ]
        copy = (
            [f"not all is copied to {self.results.url}: {self.results.problem}; it is in {self.folder}"]
            if self.results and self.results.problem
            else []
        )
        return copy + full[:10] + dropped[:10]

    def describe(self, replica: ReplicaRun) -> dict[str, Any]:
        """What `exec` needs: environment and folder of each container."""
        return {
            container.plan.name: {"env": self.environment(replica, container), "cwd": self.plan.workdir}
            for container in replica.containers
        }


def _count(replicas: list[ReplicaRun]) -> RoleCount:
    failed = next((r for r in replicas if r.phase == "Failed"), None)
    return RoleCount(
        wanted=len(replicas),
        succeeded=sum(r.phase == "Succeeded" for r in replicas),
        failure=Failure(failed.name, failed.reason, shell_code(failed.main.exit_code or 0))
        if failed
        else None,
    )
