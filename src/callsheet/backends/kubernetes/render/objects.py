"""An experiment as Kubernetes objects. Pure: the same file, run id and folder give the same objects, byte for byte.

The number of objects grows with the roles, not with the replicas. What scaling changes stands in one ConfigMap
and in the sizes of Jobs and StatefulSets; never in a pod template.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from callsheet import contract
from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.render.environment import Wiring, all_key
from callsheet.backends.kubernetes.render.network import exposure, network_policy, services
from callsheet.backends.kubernetes.render.pod import PodRenderer
from callsheet.backends.kubernetes.render.workdir import Folder, pack
from callsheet.spec.experiment import Experiment, Role
from callsheet.spec.quantity import parse_duration

Object = dict[str, Any]


def render(
    experiment: Experiment, run: str, folder: Folder, *, replicas: Mapping[str, int] | None = None
) -> list[Object]:
    """Every object of a run, in the order in which they are best created."""
    wiring = Wiring(experiment)
    sizes = {role.name: (replicas or {}).get(role.name, role.replicas) for role in experiment.spec.roles}
    parts = pack(experiment.name, folder)
    pods = PodRenderer(wiring, run, parts, _version(experiment.spec.files))
    labels = names.labels(experiment.name, run)
    objects = [
        _config_map(wiring, run, sizes),
        *([_files(experiment, run)] if experiment.spec.files else []),
        *(part.manifest(labels) for part in parts),
        *services(wiring, run),
        *exposure(wiring, run),
        network_policy(wiring, run),
        *(_workload(pods, role, run, sizes[role.name]) for role in experiment.spec.roles),
    ]
    namespace = experiment.metadata.namespace
    if namespace:
        for made in objects:
            made["metadata"]["namespace"] = namespace
    return objects


def run_id(experiment: Experiment, folder: Folder) -> str:
    """The run id of manifests that are piped to kubectl: the same for the same file, so that nothing changes twice."""
    content = experiment.model_dump_json(exclude_unset=True).encode()
    for path in sorted(folder):
        content += path.encode() + b"\0" + folder[path].data + b"\0"
    return "r" + hashlib.sha256(content).hexdigest()[:9]


def _version(files: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(files), sort_keys=True).encode()).hexdigest()[:10] if files else ""


def _config_map(wiring: Wiring, run: str, sizes: Mapping[str, int]) -> Object:
    """The ConfigMap that scaling rewrites: sizes, address lists, the address file; and what is the run's own."""
    experiment = wiring.experiment
    data = {contract.RUN: run}
    storage = storage_of(experiment, run)
    if storage:
        data[contract.STORAGE] = storage
    for role in experiment.spec.roles:
        data[f"{contract.REPLICAS}.{role.name}"] = str(sizes[role.name])
    addresses = {e: wiring.addresses(e, sizes[role.name]) for e, role in wiring.binders.items()}
    for endpoint, found in addresses.items():
        everyone = ",".join(found)
        # A variable that is too long would keep the pod from starting; the address file has no such limit.
        data[all_key(endpoint)] = everyone if len(everyone) <= contract.LONGEST_VALUE else ""
    data[names.EXPERIMENT_FILE] = experiment.model_dump_json(exclude_unset=True)
    data[names.ADDRESSES_FILE] = json.dumps(_address_file(wiring, run, sizes, addresses))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.config_map(experiment.name), "labels": names.labels(experiment.name, run)},
        "data": data,
    }


def _address_file(
    wiring: Wiring, run: str, sizes: Mapping[str, int], addresses: Mapping[str, list[str]]
) -> Object:
    """The same shape as on a laptop."""
    name = wiring.experiment.name
    containers = {
        bind.name: container.name
        for role in wiring.experiment.spec.roles
        for container in role.group
        for bind in (*container.binds, *container.exposes)
    }
    return {
        "experiment": name,
        "run": run,
        "roles": {
            role: {
                "replicas": size,
                "indexes": list(range(size)),
                "hosts": [names.host(name, role, i) for i in range(size)],
            }
            for role, size in sizes.items()
        },
        "endpoints": {
            endpoint: {
                "role": role.name,
                "container": containers[endpoint],
                "port": wiring.ports[endpoint],
                "addresses": addresses[endpoint],
            }
            for endpoint, role in wiring.binders.items()
        },
        "generation": 0,
    }


def storage_of(experiment: Experiment, run: str) -> str:
    """URL of the results as the pods see it; empty when there is none."""
    storage = experiment.spec.storage
    if not storage:
        return ""
    base = f"file://{names.STORAGE}" if urlsplit(storage).scheme == "pvc" else storage.rstrip("/")
    return f"{base}/{experiment.name}/{run}"


def _files(experiment: Experiment, run: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.files(experiment.name), "labels": names.labels(experiment.name, run)},
        "data": dict(experiment.spec.files),
    }


def _workload(pods: PodRenderer, role: Role, run: str, size: int) -> Object:
    experiment = pods.experiment
    metadata = {
        "name": names.workload(experiment.name, role.name),
        "labels": names.labels(experiment.name, run, role.name),
    }
    if role.restart.policy == "Always":
        spec = {
            "serviceName": experiment.name,
            "replicas": 0 if experiment.spec.lifecycle.suspend else size,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": names.selector(experiment.name, role.name)},
            "template": pods.template(role, job=False),
        }
        return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": _job(pods, role, size)}


def _job(pods: PodRenderer, role: Role, size: int) -> Object:
    lifecycle = pods.experiment.spec.lifecycle
    job: Object = {
        "completionMode": "Indexed",
        "completions": size,
        "parallelism": size,
        "backoffLimitPerIndex": 0 if role.restart.policy == "Never" else role.restart.limit,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            # An eviction is nobody's fault: the replica comes back and its budget stays as it is.
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {
                    "action": "FailIndex",
                    "onExitCodes": {
                        "containerName": role.group[0].name,
                        "operator": "In",
                        "values": [contract.EXIT_HOPELESS],
                    },
                },
            ]
        },
        "template": pods.template(role, job=True),
    }
    if lifecycle.suspend:
        job["suspend"] = True
    if lifecycle.deadline:
        job["activeDeadlineSeconds"] = ceil(parse_duration(lifecycle.deadline))
    if lifecycle.ttl_after_finished:
        job["ttlSecondsAfterFinished"] = ceil(parse_duration(lifecycle.ttl_after_finished))
    return job
