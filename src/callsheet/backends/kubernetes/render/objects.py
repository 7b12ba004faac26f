"""An experiment as Kubernetes objects. Pure: the same file, run id and folder give the same objects, byte for byte.

The number of objects depends on the roles, not on the replicas. What scaling changes is in one ConfigMap and in the sizes
of Jobs and StatefulSets, never in a pod template.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

from callsheet import contract
from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.render.addressing import KubernetesAddressing
from callsheet.backends.kubernetes.render.network import ingresses, network_policy, services
from callsheet.backends.kubernetes.render.pod import PodRenderer
from callsheet.backends.kubernetes.render.workdir import Folder, collect, pack
from callsheet.lifecycle.restart import FATAL_CODES, RestartRules
from callsheet.plan.model import Plan
from callsheet.plan.resolve import resolve
from callsheet.spec.dump import dump
from callsheet.spec.experiment import Experiment, Role
from callsheet.spec.quantity import parse_duration

Object = dict[str, Any]


def manifests(experiment: Experiment, base: Path, run: str = "") -> list[Object]:
    """Every object of the experiment, with the workdir. If `run` is omitted, the id is a hash of the content."""
    workdir = experiment.spec.workdir
    folder = collect((base / workdir.path).resolve(), workdir.exclude)
    return render(experiment, run or run_id(experiment, folder), folder)


def to_text(objects: list[Object]) -> str:
    """Objects as one YAML stream."""
    return "---\n".join(dump(made) for made in objects)


def render(
    experiment: Experiment, run: str, folder: Folder, *, replicas: Mapping[str, int] | None = None
) -> list[Object]:
    """Every object of a run, in the order in which to create them."""
    plan = resolve(experiment, KubernetesAddressing(experiment, run), run, replicas=replicas)
    code = pack(experiment.name, folder)
    pods = PodRenderer(experiment, plan, code, _version(experiment.spec.files))
    labels = names.labels(experiment.name, run)
    objects = [
        config_map(experiment, plan),
        *([_files(experiment, run)] if experiment.spec.files else []),
        *(packed.manifest(labels) for packed in code),
        *services(experiment, plan),
        *ingresses(experiment, plan),
        network_policy(experiment, plan),
        *(_workload(pods, role) for role in experiment.spec.roles),
    ]
    namespace = experiment.metadata.namespace
    if namespace:
        for made in objects:
            made["metadata"]["namespace"] = namespace
    return objects


def run_id(experiment: Experiment, folder: Folder) -> str:
    """The run id of manifests for kubectl: the same for the same file and folder, so that nothing changes twice."""
    content = experiment.model_dump_json(exclude_unset=True).encode()
    for path in sorted(folder):
        content += path.encode() + b"\0" + folder[path].data + b"\0"
    return "r" + hashlib.sha256(content).hexdigest()[:9]


def _version(files: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(files), sort_keys=True).encode()).hexdigest()[:10] if files else ""


def config_map(experiment: Experiment, plan: Plan) -> Object:
    """What scaling rewrites: sizes, address lists, the address file; and what belongs to the run."""
    data = {contract.RUN: plan.run}
    if plan.storage:
        data[contract.STORAGE] = plan.storage
    for role in plan.roles:
        data[names.replicas_key(role.name)] = str(len(role.replicas))
    for name, endpoint in plan.address_book["endpoints"].items():
        everyone = ",".join(endpoint["addresses"])
        # A variable that is too long would keep the pod from starting; the address file has no such limit.
        key = contract.endpoint_variable(name, contract.ENDPOINT_ALL)
        data[key] = everyone if len(everyone) <= contract.LONGEST_VALUE else ""
    data[names.EXPERIMENT_FILE] = experiment.model_dump_json(exclude_unset=True)
    data[names.ADDRESSES_FILE] = json.dumps(plan.address_book | {"generation": 0})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.config_map(plan.experiment),
            "labels": names.labels(plan.experiment, plan.run),
        },
        "data": data,
    }


def _files(experiment: Experiment, run: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.files(experiment.name), "labels": names.labels(experiment.name, run)},
        "data": dict(experiment.spec.files),
    }


def _workload(pods: PodRenderer, role: Role) -> Object:
    experiment, run, owner = pods.experiment, pods.plan.run, names.Owner.of(role)
    size = len(pods.plan.role(role.name).replicas)
    metadata = {
        "name": names.workload(experiment.name, role.name),
        "labels": names.labels(experiment.name, run, role.name),
    }
    if owner is names.Owner.JOB:
        return {
            "apiVersion": "batch/v1",
            "kind": owner.kind,
            "metadata": metadata,
            "spec": _job(pods, role, size),
        }
    spec = {
        "serviceName": experiment.name,
        "replicas": 0 if experiment.spec.lifecycle.suspend else size,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": names.selector(experiment.name, role.name)},
        "template": pods.template(role),
    }
    return {"apiVersion": "apps/v1", "kind": owner.kind, "metadata": metadata, "spec": spec}


def _job(pods: PodRenderer, role: Role, size: int) -> Object:
    lifecycle = pods.experiment.spec.lifecycle
    job: Object = {
        "completionMode": "Indexed",
        "completions": size,
        "parallelism": size,
        "backoffLimitPerIndex": RestartRules(role.restart.policy, role.restart.limit).allowed,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            # The rules of `lifecycle.restart` in a Job's words: a disruption costs nothing.
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailIndex",
                    "onExitCodes": {
                        "containerName": role.group[0].name,
                        "operator": "In",
                        "values": list(FATAL_CODES),
                    },
                },
            ]
        },
        "template": pods.template(role),
    }
    if lifecycle.suspend:
        job["suspend"] = True
    if lifecycle.deadline:
        job["activeDeadlineSeconds"] = ceil(parse_duration(lifecycle.deadline))
    if lifecycle.ttl_after_finished:
        job["ttlSecondsAfterFinished"] = ceil(parse_duration(lifecycle.ttl_after_finished))
    return job
