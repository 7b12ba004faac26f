"""A pod template of a DIJob as the fields of a role: what Callsheet has a field for, and the rest as raw Kubernetes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from callsheet.compat.dijob.container import ContainerReader
from callsheet.compat.dijob.environment import Task, Variables
from callsheet.compat.dijob.job import DIJob, to_tree
from callsheet.compat.dijob.volumes import Volumes
from callsheet.spec.yaml_tree import Loc

MAIN_CONTAINER = "di-container"

_SAME = (
    "nodeSelector",
    "tolerations",
    "affinity",
    "priorityClassName",
    "imagePullSecrets",
    "serviceAccountName",
)
_PATCHED = (
    "activeDeadlineSeconds",
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "ephemeralContainers",
    "hostAliases",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "initContainers",
    "nodeName",
    "os",
    "overhead",
    "preemptionPolicy",
    "priority",
    "readinessGates",
    "resourceClaims",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "topologySpreadConstraints",
)
_OWN = (
    "containers",
    "hostname",
    "restartPolicy",
    "securityContext",
    "serviceAccount",
    "subdomain",
    "terminationGracePeriodSeconds",
    "volumes",
)
_IMAGES_OWN_USER = {"$patch": "replace", "seccompProfile": {"type": "RuntimeDefault"}}
"""DI's images run as they were built, nearly always as root: this removes what Callsheet sets. (A null would do so too, but
kubectl drops nulls.)"""


@dataclass(frozen=True, slots=True)
class PodContext:
    """What a pod is converted in."""

    job: DIJob
    endpoints: Collection[str]
    """Names of all tasks."""
    volumes: Volumes
    carries_code: bool
    """Whether the programs are in the workdir rather than in the image."""


def role(context: PodContext, task: Task, variables: Variables) -> dict[str, Any]:
    """The fields of a task's role."""
    job, loc = context.job, (*task.template, "spec")
    job.only(task.template, ("metadata", "spec"))
    job.only(loc, (*_SAME, *_PATCHED, *_OWN))
    made: dict[str, Any] = {"name": to_tree(task.name, job.nearest(task.named)), "replicas": task.replicas}
    made |= task.fields
    made |= job.given(loc, _SAME) | job.given((*task.template, "metadata"), ("labels", "annotations"))
    if job.node((*loc, "serviceAccount")) is not None:
        made.setdefault("serviceAccountName", job.nearest((*loc, "serviceAccount")))
    if job.node((*loc, "terminationGracePeriodSeconds")) is not None:
        made["terminationGracePeriod"] = f"{job.number((*loc, 'terminationGracePeriodSeconds'), 30)}s"
    _without_counterpart(job, loc, task)
    patch = job.given(loc, _PATCHED)
    if "initContainers" in patch:
        job.warn((*loc, "initContainers"), "init containers run on Kubernetes only")
    security = (*loc, "securityContext")
    patch["securityContext"] = _IMAGES_OWN_USER | job.given(security, job.keys(security))
    context.volumes.declare((*loc, "volumes"), task.name)
    made |= _containers(context, task, variables)
    odd = context.volumes.patched(task.name)
    if odd:
        patch["volumes"] = odd
    return made | {"podPatch": patch}


def _without_counterpart(job: DIJob, loc: Loc, task: Task) -> None:
    for key in ("hostname", "subdomain"):
        if job.node((*loc, key)) is not None:
            job.warn((*loc, key), "is ignored: every replica has its own stable host name")
    policy = job.choice((*loc, "restartPolicy"), ("Always", "OnFailure", "Never"))
    if policy and policy != task.fields["restart"]["policy"]:
        job.warn(
            (*loc, "restartPolicy"),
            f"{policy} is ignored, as DI-orchestrator overrides it too",
            "set restart.policy of the role if you want it",
        )


def _containers(context: PodContext, task: Task, variables: Variables) -> dict[str, Any]:
    """One container inline, or a group whose main container is DI's."""
    job, loc = context.job, (*task.template, "spec", "containers")
    places = list(job.items(loc))
    if not places:
        job.mistake((*task.template, "spec"), "there is no container", "add containers: with one item")
        return {"binds": [{"name": task.name}]}  # so that no other role misses it
    names = [job.text((*place, "name")) for place in places]
    first = names.index(MAIN_CONTAINER) if MAIN_CONTAINER in names else 0
    ordered = [places[first], *(place for place in places if place != places[first])]
    reader = ContainerReader(context.job, context.endpoints, context.volumes, context.carries_code)
    made = [reader.read(place, task, variables, main=number == 0) for number, place in enumerate(ordered)]
    if len(made) == 1:
        return made[0]
    job.warn(
        loc,
        f"the pod ends when {names[first]!r} ends, which stops the other containers; under DI it ended when all of"
        " them had",
    )
    named = [
        {"name": job.nearest((*place, "name")), **fields} for place, fields in zip(ordered, made, strict=True)
    ]
    return {"containers": named}
