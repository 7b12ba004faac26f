"""A pod template of a DIJob as the fields of a role: what Callsheet has a field for, and the rest as raw Kubernetes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from callsheet.compat.dijob.container import ContainerReader
from callsheet.compat.dijob.environment import Task, Variables
from callsheet.compat.dijob.job import Job, grow
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
"""DI's images run as they were built, nearly always as root: what Callsheet sets otherwise is taken back. (A null would say
so too, but kubectl drops nulls.)"""


@dataclass(frozen=True, slots=True)
class Setting:
    """What surrounds a pod."""

    job: Job
    endpoints: Collection[str]
    """Names of all tasks."""
    volumes: Volumes
    carries_code: bool
    """Whether the programs lie in a folder of the user's rather than in the image."""


def role(setting: Setting, task: Task, variables: Variables) -> dict[str, Any]:
    """The fields of a task's role."""
    job, loc = setting.job, (*task.template, "spec")
    job.only(task.template, ("metadata", "spec"))
    job.only(loc, (*_SAME, *_PATCHED, *_OWN))
    made: dict[str, Any] = {"name": grow(task.name, job.near(task.named)), "replicas": task.replicas}
    made |= task.fields
    made |= {key: job.near((*loc, key)) for key in _SAME if job.node((*loc, key)) is not None}
    for key in ("labels", "annotations"):
        place = (*task.template, "metadata", key)
        if job.node(place) is not None:
            made[key] = job.near(place)
    if job.node((*loc, "serviceAccount")) is not None:
        made.setdefault("serviceAccountName", job.near((*loc, "serviceAccount")))
    if job.node((*loc, "terminationGracePeriodSeconds")) is not None:
        made["terminationGracePeriod"] = f"{job.number((*loc, 'terminationGracePeriodSeconds'), 30)}s"
    _without_counterpart(job, loc, task)
    patch: dict[str, Any] = {
        key: job.near((*loc, key)) for key in _PATCHED if job.node((*loc, key)) is not None
    }
    if "initContainers" in patch:
        job.warn((*loc, "initContainers"), "init containers run on Kubernetes only, not on a laptop")
    own = {key: job.near((*loc, "securityContext", key)) for key in job.keys((*loc, "securityContext"))}
    patch["securityContext"] = _IMAGES_OWN_USER | own
    setting.volumes.declare((*loc, "volumes"), task.name)
    made |= _containers(setting, task, variables)
    odd = setting.volumes.odd(task.name)
    if odd:
        patch["volumes"] = odd
    return made | {"podPatch": patch}


def _without_counterpart(job: Job, loc: Loc, task: Task) -> None:
    for key in ("hostname", "subdomain"):
        if job.node((*loc, key)) is not None:
            job.warn((*loc, key), "is left out: every replica has a stable host name of its own")
    policy = job.choice((*loc, "restartPolicy"), ("Always", "OnFailure", "Never"))
    if policy and policy != task.fields["restart"]["policy"]:
        job.warn(
            (*loc, "restartPolicy"),
            f"{policy} is left out, as DI-orchestrator itself overrides it",
            "change restart.policy of the role if you mean it",
        )


def _containers(setting: Setting, task: Task, variables: Variables) -> dict[str, Any]:
    """One container inline, or a group whose main one is DI's own."""
    job, loc = setting.job, (*task.template, "spec", "containers")
    places = list(job.items(loc))
    if not places:
        job.mistake((*task.template, "spec"), "there is no container", "add containers: with one item")
        return {"binds": [{"name": task.name}]}  # so that nobody else is told that it is missing
    names = [job.text((*place, "name")) for place in places]
    first = names.index(MAIN_CONTAINER) if MAIN_CONTAINER in names else 0
    ordered = [places[first], *(place for place in places if place != places[first])]
    reader = ContainerReader(setting.job, setting.endpoints, setting.volumes, setting.carries_code)
    made = [reader.read(place, task, variables, main=number == 0) for number, place in enumerate(ordered)]
    if len(made) == 1:
        return made[0]
    job.warn(
        loc,
        f"the pod ends when {names[first]!r} ends, and the containers beside it are then stopped; under DI it ended"
        " when all of them had",
    )
    named = [
        {"name": job.near((*place, "name")), **fields} for place, fields in zip(ordered, made, strict=True)
    ]
    return {"containers": named}
