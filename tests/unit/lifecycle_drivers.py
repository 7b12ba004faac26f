"""The two drivers of a run without processes or a cluster: the supervisor's own code over a loop and processes that
the test moves, and the attached client's own code over an API server whose controllers the test plays."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

from callsheet.backends.base import Status
from callsheet.backends.kubernetes import launch, names
from callsheet.backends.kubernetes import run as kubernetes_run
from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.client.errors import ApiError
from callsheet.backends.kubernetes.observe.observed import Observed, index_of, is_over, role_of
from callsheet.backends.kubernetes.render.objects import render
from callsheet.backends.local.addressing import LocalAddressing
from callsheet.backends.local.loopback import blocks_needed
from callsheet.backends.local.supervisor import container as local_container
from callsheet.backends.local.supervisor import replica as local_replica
from callsheet.backends.local.supervisor import run as local_run
from callsheet.backends.local.supervisor.files import Layout
from callsheet.backends.local.supervisor.gpus import GpuPool
from callsheet.lifecycle.restart import shell_code
from callsheet.lifecycle.verdict import Verdict
from callsheet.plan.model import Plan
from callsheet.plan.resolve import resolve
from callsheet.spec.experiment import Experiment

Object = dict[str, Any]
RUN = "r1"
START = 1_800_000_000.0
STOPPED = Verdict("Stopped", "stopped", 143)


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = START

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        pass


class Loop:
    """An event loop whose timers fire when the test says so."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None], mock.Mock]] = []

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        self.soon.append(lambda: callback(*args))

    def call_later(self, delay: float, callback: Callable[..., None], *args: Any) -> mock.Mock:
        handle = mock.Mock(cancelled=False)
        handle.cancel = lambda: setattr(handle, "cancelled", True)
        self.later.append((delay, lambda: callback(*args), handle))
        return handle

    def run_soon(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def fire(self, up_to: float) -> None:
        """Everything that was due within so many seconds."""
        due = [entry for entry in self.later if entry[0] <= up_to]
        self.later = [entry for entry in self.later if entry[0] > up_to]
        for _, callback, handle in due:
            if not handle.cancelled:
                callback()
        self.run_soon()


class Processes:
    """Processes that end when the test says so; one that is asked to end does so with 143."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.running: dict[int, Callable[[int], None]] = {}
        self._last = 0

    def start(self, command: Any, env: Any, output: int, on_exit: Callable[[int], None], *more: Any) -> int:
        self._last += 1
        self.running[self._last] = on_exit
        return self._last

    def exit(self, pid: int, code: int) -> None:
        if on_exit := self.running.pop(pid, None):
            on_exit(code)

    def terminate(self, pid: int) -> None:
        self.loop.call_soon(self.exit, pid, 143)

    kill = terminate

    def end_all(self, run: str) -> None:
        pass


class Ports:
    """Ports that listen when the test says so."""

    def __init__(self, loop: Loop) -> None:
        self.waiting: dict[Any, Callable[[], None]] = {}

    def wait(self, key: Any, host: str, ports: Any, on_ready: Callable[[], None]) -> None:
        self.waiting[key] = on_ready

    def not_listening(self, key: Any) -> tuple[int, ...]:
        return ()

    def forget(self, key: Any) -> None:
        self.waiting.pop(key, None)


class Local:
    """The supervisor's `RunState`."""

    def __init__(self, experiment: Experiment, clock: Clock) -> None:
        self.experiment = experiment
        self.clock = clock
        self.loop = Loop()
        self.sizes = {role.name: role.replicas for role in experiment.spec.roles}
        with self.patched():
            self.run = local_run.RunState(self.plan(), "/runs/exp/r1", GpuPool([]), lambda: None)
            self.run.start()
            self.loop.run_soon()

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        log = mock.Mock(written=0, dropped=0, error="", last_line=lambda: "")
        with (
            mock.patch.object(local_run.asyncio, "get_running_loop", return_value=self.loop),
            mock.patch.object(local_run, "Processes", Processes),
            mock.patch.object(local_run, "PortWatch", Ports),
            mock.patch.object(local_run, "time", self.clock),
            mock.patch.object(local_replica, "time", self.clock),
            mock.patch.object(local_container, "time", self.clock),
            mock.patch.object(local_replica, "Capture", mock.Mock()),
            mock.patch.object(local_replica, "LogFile", return_value=log),
        ):
            yield

    def plan(self) -> Plan:
        blocks = [f"127.9.{n}" for n in range(blocks_needed(self.experiment))]
        layout = Layout(Path("/runs/exp/r1"))
        addressing = LocalAddressing(self.experiment, layout, "/code", "file:///runs", blocks, frozenset())
        return resolve(self.experiment, addressing, RUN, replicas=self.sizes)

    def act(self, do: Callable[..., None], *args: Any) -> None:
        with self.patched():
            do(*args)
            self.loop.run_soon()

    def status(self) -> Status:
        with self.patched():
            return self.run.status()

    def _container(self, role: str, index: int, which: int = 0) -> Any:
        return self.run.replicas[role, index].containers[which]

    def become_ready(self, role: str, index: int) -> None:
        self.act(cast(Any, self.run.ports).waiting.pop(self._container(role, index)))

    def exit(self, role: str, index: int, code: int, which: int = 0) -> None:
        self.act(cast(Any, self.run.processes).exit, self._container(role, index, which).pid, code)

    def restart(self, role: str, index: int) -> None:
        self.act(self.run.replicas[role, index].stop, "restart")

    def retry(self) -> None:
        self.act(self.loop.fire, 30.0)

    def advance(self) -> None:
        deadline = self.run.plan.deadline
        if deadline is not None and self.clock.now >= START + deadline:
            self.act(self.loop.fire, deadline)

    def scale(self, role: str, size: int) -> None:
        self.sizes[role] = size
        self.act(self.run.apply, self.plan(), self.run.generation)

    def stop(self) -> None:
        self.act(self.run.stop, STOPPED)


class Cluster:
    """An API server with what the controllers of Jobs and StatefulSets and the kubelets would do."""

    namespace = "team"

    def __init__(self, experiment: Experiment, clock: Clock) -> None:
        self.clock = clock
        self.objects_by_name = {(o["kind"], o["metadata"]["name"]): o for o in render(experiment, RUN, {})}
        self.config_map = self.objects_by_name["ConfigMap", experiment.name]
        self.config_map["metadata"] |= {
            "resourceVersion": "1",
            "annotations": {names.STARTED: str(clock.now)},
        }
        self.pods: list[Object] = []
        self._made = 0
        for (kind, name), made in self.objects_by_name.items():
            made["metadata"]["uid"] = f"{kind}-{name}"
        for workload in self._workloads():
            workload["status"] = {}
            for index in range(self._size(workload)):
                self.make_pod(workload, workload["metadata"]["labels"][names.ROLE], index, 0)

    def get(self, kind: str, name: str) -> Object | None:
        return copy.deepcopy(self.objects_by_name.get((kind, name)))

    def objects(self, kind: str, labels: Any = None, **more: Any) -> list[Object]:
        if kind == "Pod":
            return copy.deepcopy(self.pods)
        return [copy.deepcopy(o) for (k, _), o in self.objects_by_name.items() if k == kind]

    def create(self, made: Object) -> None:
        if (made["kind"], made["metadata"]["name"]) in self.objects_by_name:
            raise ApiError(409, "it exists", "the cluster refused")
        self.objects_by_name[made["kind"], made["metadata"]["name"]] = made

    def apply(self, made: Object) -> None:
        there = self.objects_by_name[made["kind"], made["metadata"]["name"]]
        there["data"] = copy.deepcopy(made["data"])
        there["metadata"].setdefault("annotations", {}).update(made["metadata"].get("annotations", {}))
        self._bump(there)

    def patch(self, kind: str, name: str, body: Object) -> None:
        if kind == "Pod":
            return
        there = self.objects_by_name[kind, name]
        body = copy.deepcopy(body)
        version = body.get("metadata", {}).pop("resourceVersion", None)
        if version not in (None, there["metadata"].get("resourceVersion")):
            raise ApiError(409, "the object has been modified", "the cluster refused")
        there["metadata"].setdefault("annotations", {}).update(
            body.get("metadata", {}).get("annotations", {})
        )
        there.setdefault("spec", {}).update(body.get("spec", {}))
        self._bump(there)
        self.end_pods()

    def _bump(self, there: Object) -> None:
        there["metadata"]["resourceVersion"] = str(int(there["metadata"].get("resourceVersion", 1)) + 1)

    def workload(self, role: str) -> Object:
        kinds = [("Job", f"exp-{role}"), ("StatefulSet", f"exp-{role}")]
        return next(self.objects_by_name[key] for key in kinds if key in self.objects_by_name)

    def pods_of(self, role: str, index: int) -> list[Object]:
        return [pod for pod in self.pods if role_of(pod) == role and index_of(pod) == index]

    def _size(self, workload: Object) -> int:
        spec = workload["spec"]
        if workload["kind"] == "StatefulSet":
            return int(spec["replicas"])
        return 0 if spec.get("suspend") else int(spec["completions"])

    def end_pods(self) -> None:
        """Pods that are no longer wanted and still run are deleted; those that have ended stay."""
        sizes = {w["metadata"]["labels"][names.ROLE]: self._size(w) for w in self._workloads()}
        stateful = {w["metadata"]["labels"][names.ROLE] for w in self._workloads() if w["kind"] != "Job"}
        self.pods = [
            pod
            for pod in self.pods
            if cast(int, index_of(pod)) < sizes[role_of(pod)]
            or (is_over(pod) and role_of(pod) not in stateful)
        ]

    def _workloads(self) -> list[Object]:
        return [o for (kind, _), o in self.objects_by_name.items() if kind in ("Job", "StatefulSet")]

    def make_pod(self, workload: Object, role: str, index: int, failures: int) -> None:
        self._made += 1
        template = workload["spec"]["template"]
        job = workload["kind"] == "Job"
        key = "batch.kubernetes.io/job-completion-index" if job else "apps.kubernetes.io/pod-index"
        metadata = {
            "name": f"exp-{role}-{index}-{self._made}",
            "uid": f"pod-{self._made}",
            "creationTimestamp": f"2027-01-15T08:{self._made // 60:02}:{self._made % 60:02}Z",
            "labels": template["metadata"]["labels"] | {key: str(index)},
            "annotations": {names.FAILURE_COUNT: str(failures)} if job else {},
        }
        beside = [_container(c["name"], ready=True) for c in template["spec"].get("initContainers", [])]
        status: Object = {
            "phase": "Running",
            "containerStatuses": [_container(template["spec"]["containers"][0]["name"])],
            "initContainerStatuses": beside,
            "conditions": [{"type": "Ready", "status": "False"}],
        }
        self.pods.append({"metadata": metadata, "spec": template["spec"], "status": status})


def _container(name: str, *, ready: bool = False) -> Object:
    running = {"running": {"startedAt": "2027-01-15T08:00:00Z"}}
    return {"name": name, "image": "x", "ready": ready, "restartCount": 0, "state": running}


def _settle(pod: Object) -> None:
    """A pod is ready when all its containers are."""
    status = pod["status"]
    ready = all(c["ready"] for c in (*status["containerStatuses"], *status["initContainerStatuses"]))
    status["conditions"] = [c for c in status["conditions"] if c["type"] != "Ready"]
    status["conditions"].append({"type": "Ready", "status": str(ready)})


def _failures_after(pod: Object) -> int:
    conditions = pod["status"]["conditions"]
    disrupted = any(c["type"] == "DisruptionTarget" for c in conditions)
    return int(pod["metadata"]["annotations"][names.FAILURE_COUNT]) + (not disrupted)


class Attached:
    """An attached client's `KubernetesRun`."""

    def __init__(self, experiment: Experiment, clock: Clock) -> None:
        self.clock = clock
        self.cluster = Cluster(experiment, clock)
        self.run = kubernetes_run.KubernetesRun(cast(Api, self.cluster), experiment.name, RUN, attached=True)

    def status(self) -> Status:
        """One look, with all that an attached client does about what it sees."""
        with (
            mock.patch.object(kubernetes_run, "time", self.clock),
            mock.patch.object(launch, "time", self.clock),
        ):
            return next(iter(self.run.watch()))

    def _newest(self, role: str, index: int) -> Object:
        return self.cluster.pods_of(role, index)[-1]

    def become_ready(self, role: str, index: int) -> None:
        pod = self._newest(role, index)
        pod["status"]["containerStatuses"][0]["ready"] = True
        _settle(pod)

    def exit(self, role: str, index: int, code: int, which: int = 0, *, disrupted: bool = False) -> None:
        pod, workload = self._newest(role, index), self.cluster.workload(role)
        if which:
            beside = pod["status"]["initContainerStatuses"][which - 1]
            beside |= {"restartCount": beside["restartCount"] + 1, "ready": False}
            _settle(pod)
            return
        ended = {"terminated": {"exitCode": shell_code(code), "finishedAt": "2027-01-15T08:00:01Z"}}
        pod["status"]["containerStatuses"][0] |= {"state": ended, "ready": False}
        _settle(pod)
        if workload["kind"] == "StatefulSet":
            return
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        if disrupted:
            pod["status"]["conditions"].append({"type": "DisruptionTarget", "status": "True"})
        self._count(pod, workload, index, shell_code(code), disrupted=disrupted)

    def _count(self, pod: Object, workload: Object, index: int, code: int, *, disrupted: bool) -> None:
        """What the Job controller does, by the fields that were rendered."""
        spec, status = workload["spec"], workload["status"]
        ignore, fatal = spec["podFailurePolicy"]["rules"]
        assert ignore["action"] == "Ignore"
        assert fatal["action"] == "FailIndex"
        failures = int(pod["metadata"]["annotations"][names.FAILURE_COUNT])
        if code == 0:
            key = "completedIndexes"
        elif disrupted:
            return
        elif failures >= spec["backoffLimitPerIndex"] or code in fatal["onExitCodes"]["values"]:
            key = "failedIndexes"
        else:
            return
        status[key] = ",".join(filter(None, [status.get(key, ""), str(index)]))

    def restart(self, role: str, index: int) -> None:
        """`callsheet restart` evicts the pod, and a new one comes."""
        workload = self.cluster.workload(role)
        if workload["kind"] == "StatefulSet":
            self.cluster.pods.remove(self._newest(role, index))
            self.cluster.make_pod(workload, role, index, 0)
            return
        pod = self._newest(role, index)
        self.exit(role, index, 143, disrupted=True)
        self.cluster.make_pod(workload, role, index, _failures_after(pod))

    def retry(self) -> None:
        for workload in self.cluster._workloads():
            role, status = workload["metadata"]["labels"][names.ROLE], workload["status"]
            over = f",{status.get('completedIndexes', '')},{status.get('failedIndexes', '')},"
            for index in range(self.cluster._size(workload)):
                pods = self.cluster.pods_of(role, index)
                if not pods:
                    continue
                for beside in pods[-1]["status"]["initContainerStatuses"]:
                    beside["ready"] = True
                _settle(pods[-1])
                main = pods[-1]["status"]["containerStatuses"][0]
                if workload["kind"] == "Job" and is_over(pods[-1]) and f",{index}," not in over:
                    self.cluster.make_pod(workload, role, index, _failures_after(pods[-1]))
                elif workload["kind"] == "StatefulSet" and "terminated" in main["state"]:
                    main |= _container(main["name"]) | {
                        "restartCount": main["restartCount"] + 1,
                        "lastState": main["state"],
                    }

    def advance(self) -> None:
        pass

    def scale(self, role: str, size: int) -> None:
        observed = self.run._observe(events=False)
        with mock.patch.object(launch, "time", self.clock):
            launch.resize(cast(Api, self.cluster), observed, {role: size})
        workload, there = self.cluster.workload(role), Observed(self.cluster.config_map, {}, [])
        assert there.size(role) == size
        for index in range(size):
            pods = self.cluster.pods_of(role, index)
            if not pods or pods[-1]["metadata"]["uid"] in there.record.forgotten:
                self.cluster.make_pod(workload, role, index, 0)

    def stop(self) -> None:
        with mock.patch.object(kubernetes_run, "time", self.clock):
            self.run.stop(reason=STOPPED.reason, code=STOPPED.code)
