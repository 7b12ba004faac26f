"""The replicas of a run, from their pods: phases and reasons, and what the restart rules say when a program ended.

A Job counts the failures of its indexes itself. A StatefulSet's pods only tell how often a container ended; which of
those were failures is in the run's record. Pure: objects in, status out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from callsheet import contract
from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.observe import reasons
from callsheet.backends.kubernetes.observe.observed import Object, Observed, indexes, is_over, moment
from callsheet.backends.kubernetes.record import Count, restart_rules
from callsheet.backends.status import ContainerStatus, ReplicaStatus
from callsheet.lifecycle.restart import Ended, Failed, Finished, Restart, RestartRules, Tally, after_exit
from callsheet.lifecycle.verdict import Failure

Decision = Restart | Finished | Failed
_NEW_POD = "a new pod takes its place soon"


class Replicas:
    """Looks at every replica in turn, and keeps count of what they spend of the run's budget."""

    def __init__(self, observed: Observed, max_restarts: int | None, now: float) -> None:
        self.observed = observed
        self.now = now
        self.ended = observed.outcome is not None
        self.failures: dict[str, Failure] = {}
        """The first replica of each role that has failed for good."""
        self.counts = dict(observed.record.replicas)
        self._pods = observed.by_replica()
        self._max = max_restarts
        self.spent = observed.record.left + sum(count.failures for count in self.counts.values())
        self.spent += sum(
            _counted_by_job(pods[-1])
            for (role, index), pods in self._pods.items()
            if index < observed.size(role)
        )

    def of(self, role: Object) -> Iterator[ReplicaStatus]:
        """The replicas of one role."""
        name = role["name"]
        state = (self.observed.workloads.get(name) or {}).get("status") or {}
        done = indexes(state.get("completedIndexes", ""))
        lost = indexes(state.get("failedIndexes", ""))
        for index in range(self.observed.size(name)):
            pods = self._pods.get((name, index), [])
            replica = ReplicaStatus(
                role=name,
                index=index,
                host=names.host(self.observed.config_map["metadata"]["name"], name, index),
                phase="Pending",
                containers=[ContainerStatus(name=c["name"]) for c in role.get("containers") or [role]],
            )
            self._look(replica, role, pods)
            if index in done:
                replica.phase, replica.reason, replica.ready = "Succeeded", "", False
            elif index in lost and replica.phase != "Failed":
                why = replica.reason.partition(";")[0] or "its pod is gone"
                self._fail(replica, f"{why}; its Job gave it up", _code(pods))
            elif self.ended and replica.phase == "Pending":
                replica.phase, replica.reason = "Stopped", ""
            yield replica

    def _look(self, replica: ReplicaStatus, role: Object, pods: Sequence[Object]) -> None:
        rules = restart_rules(role)
        decide = self._decide_stateful if rules.policy == "Always" else self._decide_job
        failures, decision = decide(replica.name, rules, pods[-1] if pods else None)
        if pods:
            _from_pod(replica, pods[-1], self.observed.events, self.now, in_place=rules.policy == "Always")
        elif not self.ended:
            workload = self.observed.workloads.get(replica.role) or {}
            replica.reason = _without_pod(workload, self.observed.events)
        replica.restarts = failures + self._count_sidecars(replica, pods)
        if isinstance(decision, Failed):
            self._fail(replica, decision.reason, self.counts.get(replica.name, Count()).code or _code(pods))
        elif isinstance(decision, Finished):
            replica.phase, replica.reason = "Succeeded", ""
        elif decision and rules.policy != "Always":
            replica.phase, replica.reason = "Pending", f"{decision.why}; {_NEW_POD}"

    def _count_sidecars(self, replica: ReplicaStatus, pods: Sequence[Object]) -> int:
        """Restarts of the sidecars, including those in pods that are gone."""
        count = self.counts.get(replica.name, Count())
        sidecars = dict(count.sidecars)
        for container in replica.containers[1:]:
            for pod in pods:
                if restarts := _restarts(pod, container.name):
                    sidecars[f"{reasons.uid(pod)}/{container.name}"] = restarts
            container.restarts = sum(n for key, n in sidecars.items() if key.endswith(f"/{container.name}"))
        if sidecars != count.sidecars:
            self.counts[replica.name] = replace(count, sidecars=sidecars)
        return sum(sidecars.values())

    def _fail(self, replica: ReplicaStatus, reason: str, code: int) -> None:
        replica.phase, replica.reason, replica.ready = "Failed", reason, False
        self.failures.setdefault(replica.role, Failure(replica.name, reason, code))

    def _decide_job(self, name: str, rules: RestartRules, pod: Object | None) -> tuple[int, Decision | None]:
        failures = _counted_by_job(pod) if pod else 0
        if pod is None or not is_over(pod):
            return failures, None
        return self._decide(ended_of(pod), rules, failures)

    def _decide_stateful(
        self, name: str, rules: RestartRules, pod: Object | None
    ) -> tuple[int, Decision | None]:
        """The program may have ended several times since the last look; all but the last are taken to be like it."""
        count = self.counts.get(name, Count())
        if count.failed:
            return count.failures, Failed(count.failed)
        main = _main(pod) if pod else {}
        ends = int(main.get("restartCount", 0)) + bool(_has_ended(main))
        if pod is None or not ends:
            return count.failures, None
        uid, failures, ended = reasons.uid(pod), count.failures, ended_of(pod)
        decision: Decision | None = None
        for _ in range(ends - (count.ends if count.pod == uid else 0)):
            failures, decision = self._decide(ended, rules, failures)
            if isinstance(decision, Failed):
                self.counts[name] = Count(uid, ends, failures, decision.reason, ended.code, count.sidecars)
                return failures, decision
        self.counts[name] = Count(uid, ends, failures, sidecars=count.sidecars)
        return failures, decision

    def _decide(self, ended: Ended, rules: RestartRules, failures: int) -> tuple[int, Decision]:
        left = None if self._max is None else self._max - self.spent
        decision = after_exit(ended, rules, Tally(failures), left)
        if isinstance(decision, Restart):
            self.spent += decision.tally.failures - failures
            failures = decision.tally.failures
        return failures, decision


def ended_of(pod: Object) -> Ended:
    """How the pod's program ended."""
    status, main = pod["status"], _main(pod)
    limit = str(pod["spec"]["containers"][0].get("resources", {}).get("limits", {}).get("memory", ""))
    how = (
        reasons.ended(main, limit) if main else reasons.shorten(status.get("message") or "its node went away")
    )
    conditions = status.get("conditions") or []
    return Ended(
        _code([pod]),
        how,
        disrupted=any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in conditions),
        requested=bool(pod["metadata"].get("deletionTimestamp")),
    )


def _main(pod: Object) -> Object:
    name = pod["spec"]["containers"][0]["name"]
    return next((c for c in reasons.containers_of(pod["status"]) if c["name"] == name), {})


def _code(pods: Sequence[Object]) -> int:
    state = reasons.terminated(_main(pods[-1])) if pods else {}
    return reasons.exit_code(state) if state else contract.EXIT_FAILED


def _counted_by_job(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(names.FAILURE_COUNT, 0))


def _has_ended(main: Object) -> bool:
    """Whether the container's program does not run now, and did before."""
    return "running" not in (main.get("state") or {}) and bool(reasons.terminated(main))


def _from_pod(
    replica: ReplicaStatus, pod: Object, events: list[Object], now: float, *, in_place: bool
) -> None:
    """`in_place`: the program is restarted in its pod; else by a new one."""
    status, main = pod["status"], _main(pod)
    known = {container["name"]: container for container in reasons.containers_of(status)}
    for container in replica.containers:
        if container.name in known:
            _from_container(container, known[container.name])
    running = ((main.get("state") or {}).get("running") or {}).get("startedAt")
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or [])
    replica.attempt = _counted_by_job(pod)
    replica.started = moment(running) or moment(reasons.terminated(main).get("startedAt"))
    replica.uptime = max(0.0, now - replica.started) if running else 0.0
    if is_over(pod):
        replica.reason = f"{ended_of(pod)}; {_NEW_POD}"
    elif pod["metadata"].get("deletionTimestamp"):
        replica.phase, replica.reason = "Stopping", "it was asked to end"
    elif running:
        replica.phase, replica.ready = ("Running" if ready else "Starting"), ready
        replica.reason = "" if ready else reasons.waiting(pod, events)
    elif not in_place and (main.get("state") or {}).get("terminated"):
        # Not yet Succeeded: ending the run now would take the pod from its Job before it is counted.
        replica.phase, replica.reason = "Running", f"its program has ended ({ended_of(pod)})"
    else:
        replica.phase = "Starting" if known and not _has_ended(main) else "Pending"
        replica.reason = reasons.waiting(pod, events)


def _from_container(container: ContainerStatus, seen: Object) -> None:
    container.restarts = int(seen.get("restartCount", 0))
    container.ready = bool(seen.get("ready"))
    last = reasons.terminated(seen)
    if last:
        container.exit_code = reasons.exit_code(last)


def _restarts(pod: Object, container: str) -> int:
    statuses = reasons.containers_of(pod["status"])
    return next((int(c.get("restartCount", 0)) for c in statuses if c["name"] == container), 0)


def _without_pod(workload: Object, events: list[Object]) -> str:
    if not workload:
        return "its Job or StatefulSet is gone: somebody, or ttlAfterFinished, deleted it"
    blocked = reasons.cannot_create(events, reasons.uid(workload))
    if blocked:
        return f"its pod cannot be made: {blocked}"
    for condition in (workload.get("status") or {}).get("conditions") or []:
        if condition["type"] in ("Failed", "FailureTarget") and condition["status"] == "True":
            return str(condition.get("message") or condition.get("reason") or "its Job has failed")
    return "its pod is not there yet"
