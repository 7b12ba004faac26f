"""The shapes of a DIJob in its two API versions: both become tasks and a lifecycle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from callsheet.compat.dijob.environment import COORDINATOR, Task, Variables, version_1, version_2
from callsheet.compat.dijob.job import DIJob
from callsheet.spec.yaml_tree import Loc

GROUP = "diengine.opendilab.org"
VERSIONS = (f"{GROUP}/v1alpha1", f"{GROUP}/v2alpha1")

_SPEC: Loc = ("spec",)
_PORT = 22270
_MOST = 64
"""Maximum size of the roles that a coordinator used to grow."""
_PARTS = {COORDINATOR: 22273, "collector": 22270, "learner": 22271}
"""The pods of the first version and the ports they listen on."""
_RESTARTS = 3
"""DI's own default of backoffLimit."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A DIJob, whatever its version."""

    tasks: list[Task]
    variables: Callable[[Task], Variables]
    lifecycle: dict[str, Any] = field(default_factory=dict)


def read(job: DIJob) -> Shape | None:
    """The job's shape; None if it is invalid, which has then been reported."""
    version = job.text(("apiVersion",))
    if version not in VERSIONS:
        message = f"apiVersion is {version!r}" if version else "apiVersion is missing"
        job.mistake(("apiVersion",), message, f"write {' or '.join(VERSIONS)}")
        return None
    job.only((), ("apiVersion", "kind", "metadata", "spec", "status"))
    if not job.keys(_SPEC):
        job.mistake((), "the job has no spec", "add spec: with its tasks")
        return None
    return _version_1(job) if version == VERSIONS[0] else _version_2(job)


def _warn_ignored(job: DIJob, reasons: dict[str, str]) -> None:
    for key, reason in reasons.items():
        if job.node((*_SPEC, key)) is not None:
            job.warn((*_SPEC, key), f"is ignored: {reason}")


def _lifecycle(job: DIJob) -> dict[str, Any]:
    policy = job.choice((*_SPEC, "cleanPodPolicy"), ("Running", "All", "None"))
    return {"cleanPods": policy} if policy else {}


def _version_1(job: DIJob) -> Shape | None:
    job.only(_SPEC, (*_PARTS, "group", "priorityClassName", "cleanPodPolicy", "volumes"))
    _warn_ignored(job, {"group": "it only grouped jobs for people"})
    if job.node((*_SPEC, COORDINATOR)) is None:
        job.mistake(_SPEC, "there is no coordinator", "add coordinator: {template: ...}")
    tasks = []
    for name, port in _PARTS.items():
        loc = (*_SPEC, name)
        if job.node(loc) is None:
            continue
        job.only(loc, ("template",))
        given = job.text((*loc, "template", "spec", "restartPolicy"))
        policy = given or ("Never" if name == COORDINATOR else "OnFailure")
        fields: dict[str, Any] = {"restart": {"policy": policy}}
        if job.text((*_SPEC, "priorityClassName")):
            fields["priorityClassName"] = job.nearest((*_SPEC, "priorityClassName"))
        if name != COORDINATOR:
            fields["scale"] = {"min": 0, "max": _MOST}
            job.warn(
                loc,
                "the coordinator cannot ask DI's server for more replicas, and KUBERNETES_SERVER_URL is not set: there is one",
                f"set replicas of the role {name}, or scale it while it runs: callsheet scale RUN {name}=4",
            )
        tasks.append(Task(name, loc, (*loc, "template"), port, fields=fields))
    _ddp(job)
    lifecycle = {"success": [COORDINATOR]} | _lifecycle(job)
    return Shape(tasks, lambda task: version_1(tasks, task), lifecycle)


def _ddp(job: DIJob) -> None:
    """With several GPUs, DI created an aggregator and a process for each GPU."""
    containers = (*_SPEC, "learner", "template", "spec", "containers")
    for place in job.items(containers):
        gpus = (*place, "resources", "limits", "nvidia.com/gpu")
        node = job.node(gpus)
        if node is not None and str(getattr(node, "value", "")) not in ("0", "1"):
            job.warn(
                gpus,
                "there is no aggregator and no process for each GPU: WORLD_SIZE, START_RANK and MASTER_ADDR are not set",
                "start them from the learner's command, for example with torchrun",
            )


def _version_2(job: DIJob) -> Shape | None:
    known = ("priority", "cleanPodPolicy", "preemptible", "backoffLimit", "volumes", "tasks")
    early = ("group", "engineFields", "minReplicas", "maxReplicas", "template")
    job.only(_SPEC, (*known, *early))
    _warn_ignored(
        job,
        {
            "priority": "DI-orchestrator reserved it and never used it",
            "preemptible": "no allocator moves replicas; an eviction never counts as a failure",
            "group": "it only grouped jobs for people",
            "engineFields": "DI_PARALLEL_WORKERS_ARG, DI_PORTS_ARG, DI_NODE_IDS_ARG and DI_ATTACHED_NODES_ARG are not set",
        },
    )
    limit = job.number((*_SPEC, "backoffLimit"), _RESTARTS)
    restart = {"restart": {"policy": "OnFailure", "limit": limit}}
    tasks = _tasks(job, restart) if job.node((*_SPEC, "template")) is None else [_only_task(job, restart)]
    job.warn(_SPEC, "DI_SERVER_URL is not set: there is no DI server to ask", key=True)
    namespace = job.text(("metadata", "namespace")) or "default"
    identity = f"{namespace}/{{experiment}}"
    lifecycle = {"maxRestarts": limit} | _lifecycle(job)
    return Shape(tasks, lambda task: version_2(tasks, task, identity), lifecycle) if tasks else None


def _tasks(job: DIJob, restart: dict[str, Any]) -> list[Task]:
    tasks: list[Task] = []
    first: dict[str, str] = {}
    for loc in job.items((*_SPEC, "tasks")):
        job.only(loc, ("name", "type", "replicas", "template"))
        kind = job.choice((*loc, "type"), ("learner", "collector", "evaluator", "none"))
        name = job.text((*loc, "name")) or ("" if kind == "none" else kind)
        named = (*loc, "name" if job.node((*loc, "name")) is not None else "type")
        if job.node((*loc, "type")) is None:
            job.mistake(loc, "the task has no type", "add type: learner, collector, evaluator or none")
        elif not name and kind:
            job.mistake(loc, "a task of type none needs a name", "add name:")
        if kind and kind != "none" and first.setdefault(kind, name) != name:
            job.mistake((*loc, "type"), f"there is already a task of type {kind}", "write type: none")
        if job.node((*loc, "template")) is None:
            job.mistake(loc, "the task has no template", "add template: {spec: {containers: [...]}}")
            continue
        replicas = job.number((*loc, "replicas"), 1, least=1)
        tasks.append(
            Task(name or "unnamed", named, (*loc, "template"), _PORT, replicas, listens=False, fields=restart)
        )
    if not tasks and not job.problems:
        job.mistake(_SPEC, "the job has no task", "add tasks: with one item")
    return tasks


def _only_task(job: DIJob, restart: dict[str, Any]) -> Task:
    """The shape of DI-orchestrator 1.0: one template for all pods, and bounds for their number."""
    least = job.number((*_SPEC, "minReplicas"), 1)
    most = job.number((*_SPEC, "maxReplicas"), max(least, 1), least=1)
    fields = restart | ({"scale": {"min": least, "max": most}} if most > least else {})
    replicas = max(least, 1)
    return Task("worker", _SPEC, (*_SPEC, "template"), _PORT, replicas, listens=False, fields=fields)
