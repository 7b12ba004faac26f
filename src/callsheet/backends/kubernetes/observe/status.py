"""What the cluster holds of a run, as the status that every view shows. Pure: objects in, status out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from callsheet import contract
from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.lifecycle import Verdict, decide, policy
from callsheet.backends.kubernetes.observe import reasons
from callsheet.backends.kubernetes.observe.exposed import Exposure, addresses
from callsheet.backends.status import ContainerStatus, Phase, ReplicaStatus, Status, count_roles

Object = dict[str, Any]
_INDEX = ("batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index")
_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_OVER = ("Succeeded", "Failed")


@dataclass
class Observed:
    """All that the cluster holds of one experiment at one moment."""

    config_map: Object
    workloads: dict[str, Object]
    """Job or StatefulSet by role."""
    pods: list[Object]
    events: list[Object] = field(default_factory=list)
    exposure: Exposure = field(default_factory=Exposure)

    @property
    def run(self) -> str:
        return str(self.config_map["data"][contract.RUN])

    @property
    def experiment(self) -> dict[str, Any]:
        """The file, as it was applied."""
        data: dict[str, Any] = json.loads(self.config_map["data"][names.EXPERIMENT_FILE])
        return data

    @property
    def created(self) -> float:
        annotations = self.config_map["metadata"].get("annotations") or {}
        return float(
            annotations.get(names.STARTED) or moment(self.config_map["metadata"].get("creationTimestamp"))
        )

    @property
    def outcome(self) -> Verdict | None:
        """How the run was ended, if somebody ended it."""
        text = (self.config_map["metadata"].get("annotations") or {}).get(names.OUTCOME)
        data = json.loads(text) if text else {}
        return Verdict(**data) if data.get("run") == self.run else None

    def newest(self, role: str) -> dict[int, Object]:
        """The newest pod of each replica of a role."""
        found: dict[int, Object] = {}
        for pod in self.pods:
            index = index_of(pod)
            if role_of(pod) == role and index is not None:
                there = found.get(index)
                if there is None or _age_key(pod) > _age_key(there):
                    found[index] = pod
        return found


@dataclass(frozen=True, slots=True)
class Assessment:
    """The status, and what the rules say about it."""

    status: Status
    verdict: Verdict | None
    """What an attached client should do now; None when nothing, or when it is done already."""


def assess(observed: Observed, now: float) -> Assessment:
    """The run at this moment."""
    outcome = observed.outcome
    experiment = observed.experiment
    replicas = [
        replica
        for role in experiment["spec"]["roles"]
        for replica in _replicas(observed, role, ended=outcome is not None, now=now)
    ]
    codes = _exit_codes(observed)
    verdict = outcome or decide(observed.run, experiment, replicas, codes, created=observed.created, now=now)
    active = [pod for pod in observed.pods if pod["status"].get("phase") not in _OVER]
    phase = _phase(observed, replicas, verdict, active, ended=outcome is not None)
    status = Status(
        experiment=experiment["metadata"]["name"],
        run=observed.run,
        phase=phase,
        backend="kubernetes",
        namespace=observed.config_map["metadata"].get("namespace", ""),
        reason=verdict.reason if verdict and (outcome or phase == verdict.phase) else "",
        created=observed.created,
        folder=observed.config_map["data"].get(contract.STORAGE, ""),
        generation=json.loads(observed.config_map["data"].get(names.ADDRESSES_FILE, "{}")).get(
            "generation", 0
        ),
        restarts=sum(replica.restarts for replica in replicas),
        exposed=addresses(observed.config_map, experiment, observed.exposure),
        roles=count_roles((role["name"] for role in experiment["spec"]["roles"]), replicas),
        replicas=replicas,
    )
    if status.done and verdict:
        status.exit_code = verdict.code
        status.finished = max(_last_end(observed), verdict.at if outcome else 0.0)
    elif verdict and not outcome:
        status.warnings.append(
            f"it should end now ({verdict.reason}) and nobody is attached who ends it: "
            f"`callsheet attach {observed.run}` or `callsheet stop {observed.run}`"
        )
    status.uptime = (status.finished or now) - observed.created
    return Assessment(status, None if outcome else verdict)


def _phase(
    observed: Observed,
    replicas: list[ReplicaStatus],
    verdict: Verdict | None,
    active: list[Object],
    *,
    ended: bool,
) -> Phase:
    lifecycle = observed.experiment["spec"].get("lifecycle") or {}
    left = lifecycle.get("cleanPods") == "None" and verdict is not None and verdict.phase != "Stopped"
    if verdict and (not active or (ended and left)):
        return verdict.phase
    if ended:
        return "Stopping"
    if lifecycle.get("suspend"):
        return "Suspended"
    if all(r.phase in ("Running", "Succeeded") or r.attempt or r.restarts for r in replicas):
        return "Running"
    return "Starting" if observed.pods else "Pending"


def _replicas(observed: Observed, role: Object, *, ended: bool, now: float) -> Iterable[ReplicaStatus]:
    name = role["name"]
    pods = observed.newest(name)
    workload = observed.workloads.get(name) or {}
    state = workload.get("status") or {}
    done = indexes(state.get("completedIndexes", ""))
    lost = indexes(state.get("failedIndexes", ""))
    for index in range(int(observed.config_map["data"].get(f"{contract.REPLICAS}.{name}", "0"))):
        pod = pods.get(index)
        replica = ReplicaStatus(
            role=name,
            index=index,
            host=names.host(observed.config_map["metadata"]["name"], name, index),
            phase="Pending",
            containers=[ContainerStatus(name=c["name"]) for c in role.get("containers") or [role]],
        )
        if pod is not None:
            _from_pod(replica, pod, observed.events, now=now, counts=policy(role) != "Always")
        elif not ended:
            replica.reason = _without_pod(workload, observed.events, index)
        if index in done:
            replica.phase, replica.reason, replica.ready = "Succeeded", "", False
        elif index in lost:
            replica.phase, replica.ready = "Failed", False
            replica.reason = _why_failed(replica, role, pod)
        elif ended and (pod is None or replica.phase == "Pending"):
            replica.phase, replica.reason = "Stopped", ""
        yield replica


def _from_pod(replica: ReplicaStatus, pod: Object, events: list[Object], *, now: float, counts: bool) -> None:
    status = pod["status"]
    main = pod["spec"]["containers"][0]["name"]
    known = {container["name"]: container for container in reasons.containers_of(status)}
    for container in replica.containers:
        found = known.get(container.name)
        if found:
            _from_container(container, found)
    mine = known.get(main, {})
    running = ((mine.get("state") or {}).get("running") or {}).get("startedAt")
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or [])
    replica.attempt = int((pod["metadata"].get("annotations") or {}).get(_FAILURES, 0))
    replica.restarts = replica.attempt if counts else int(mine.get("restartCount", 0))
    replica.started = moment(running) or moment(reasons.terminated(mine).get("startedAt"))
    replica.uptime = max(0.0, now - replica.started) if running else 0.0
    phase = status.get("phase")
    if phase == "Failed":
        how = status.get("message") if not mine else reasons.ended(mine, _memory(pod))
        replica.reason = f"{reasons.shorten(how or 'its node went away')}; a new pod takes its place soon"
    elif pod["metadata"].get("deletionTimestamp"):
        replica.phase, replica.reason = "Stopping", "it was asked to end"
    elif phase == "Succeeded":
        replica.phase = "Succeeded"
    elif counts and phase == "Running" and (mine.get("state") or {}).get("terminated"):
        # Not yet Succeeded: whoever ended the run now would take the pod from its Job before it is counted.
        replica.phase, replica.reason = (
            "Running",
            f"its program has ended ({reasons.ended(mine, _memory(pod))})",
        )
    elif running:
        replica.phase, replica.ready = ("Running" if ready else "Starting"), ready
        replica.reason = "" if ready else reasons.waiting(pod, events)
    else:
        replica.phase = "Starting" if known else "Pending"
        replica.reason = reasons.waiting(pod, events)


def _from_container(container: ContainerStatus, found: Object) -> None:
    container.restarts = int(found.get("restartCount", 0))
    container.ready = bool(found.get("ready"))
    last = reasons.terminated(found)
    if last:
        container.exit_code = reasons.exit_code(last)


def _without_pod(workload: Object, events: list[Object], index: int) -> str:
    if not workload:
        return "its Job or StatefulSet is gone: somebody, or ttlAfterFinished, deleted it"
    blocked = reasons.cannot_create(events, reasons.uid(workload))
    if blocked:
        return f"its pod cannot be made: {blocked}"
    for condition in (workload.get("status") or {}).get("conditions") or []:
        if condition["type"] in ("Failed", "FailureTarget") and condition["status"] == "True":
            return str(condition.get("message") or condition.get("reason") or "its Job has failed")
    return "its pod is not there yet"


def _why_failed(replica: ReplicaStatus, role: Object, pod: Object | None) -> str:
    how = replica.reason.partition(";")[0] or "its pod is gone"
    if pod is not None and reasons.containers_of(pod["status"]):
        main = reasons.containers_of(pod["status"])[0]
        how = reasons.ended(main, _memory(pod))
        last = reasons.terminated(main)
        if last and policy(role) == "OnFailure" and reasons.exit_code(last) == contract.EXIT_CONFIG:
            return f"{how}; a restart would not mend it: see its log"
    if policy(role) == "Never":
        return f"{how}; its restart policy is Never"
    limit = (role.get("restart") or {}).get("limit", 10)
    return f"{how}; it was started again {limit} times, its limit"


def _memory(pod: Object) -> str:
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return str(limits.get("memory", ""))


def _exit_codes(observed: Observed) -> dict[str, int]:
    found = {}
    for role in observed.experiment["spec"]["roles"]:
        for index, pod in observed.newest(role["name"]).items():
            state = reasons.terminated(next(iter(reasons.containers_of(pod["status"])), {}))
            if state:
                found[f"{role['name']}/{index}"] = reasons.exit_code(state)
    return found


def _last_end(observed: Observed) -> float:
    ends = [
        moment(reasons.terminated(container).get("finishedAt"))
        for pod in observed.pods
        for container in reasons.containers_of(pod["status"])
    ]
    ends += [moment((w.get("status") or {}).get("completionTime")) for w in observed.workloads.values()]
    return max(ends, default=0.0)


def role_of(pod: Object) -> str:
    """The pod's role."""
    return str((pod["metadata"].get("labels") or {}).get(names.ROLE, ""))


def index_of(pod: Object) -> int | None:
    """Which replica the pod is."""
    marks = (pod["metadata"].get("annotations") or {}) | (pod["metadata"].get("labels") or {})
    return next((int(marks[key]) for key in _INDEX if key in marks), None)


def indexes(text: str) -> set[int]:
    """Kubernetes' short form of a set of indexes: ``0,3-5``."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def moment(text: str | None) -> float:
    """A timestamp of the API server as seconds since 1970; 0 when there is none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _age_key(pod: Object) -> tuple[str, int]:
    # Two pods may be made within one second; the later one knows of more failures.
    failures = (pod["metadata"].get("annotations") or {}).get(_FAILURES, "0")
    return pod["metadata"].get("creationTimestamp") or "", int(failures)
