"""A role's pod: containers, volumes, security and placement; the same template for Jobs and StatefulSets."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from callsheet import contract
from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.render.patch import merge
from callsheet.backends.kubernetes.render.workdir import CodeConfigMap
from callsheet.errors import InvalidExperiment, Problem
from callsheet.plan.model import ContainerPlan, ContainerTemplate, EnvRef, Plan
from callsheet.spec.experiment import Container, Experiment, Role
from callsheet.spec.quantity import parse_duration

USER = 1000
GPU_TOLERATION = {"key": contract.GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}

Object = dict[str, Any]


class PodRenderer:
    """Makes the pod of each role of one experiment."""

    def __init__(
        self, experiment: Experiment, plan: Plan, workdir: list[CodeConfigMap], version: str
    ) -> None:
        self.experiment = experiment
        self.spec = experiment.spec
        self.plan = plan
        self.workdir = workdir
        """The ConfigMaps that hold the workdir; empty if the image has the code."""
        self.version = version
        """Changes with the injected files: only new pods see them."""

    def template(self, role: Role) -> Object:
        """The pod template of a role, the user's patch merged last."""
        main, *sidecars = self._containers(role)
        restart = "Never" if names.Owner.of(role) is names.Owner.JOB else "Always"
        annotations = dict(role.annotations) | ({"callsheet.dev/files": self.version} if self.version else {})
        template: Object = {
            "metadata": {
                "labels": dict(role.labels) | names.labels(self.experiment.name, self.plan.run, role.name)
            },
            "spec": {
                "restartPolicy": restart,
                "subdomain": self.experiment.name,
                "enableServiceLinks": False,
                "automountServiceAccountToken": False,
                # Otherwise the program is process 1, which ignores every signal that it has no handler for.
                "shareProcessNamespace": True,
                "terminationGracePeriodSeconds": ceil(parse_duration(role.termination_grace_period)),
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": USER,
                    "runAsGroup": USER,
                    "fsGroup": USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                **self._placement(role),
                "containers": [main],
                "volumes": self._volumes(role),
            },
        }
        if annotations:
            template["metadata"]["annotations"] = annotations
        if sidecars:
            template["spec"]["initContainers"] = [made | {"restartPolicy": "Always"} for made in sidecars]
        if role.pod_patch:
            patch = role.pod_patch if {"spec", "metadata"} & set(role.pod_patch) else {"spec": role.pod_patch}
            template = merge(template, patch)
        return template

    def _placement(self, role: Role) -> Object:
        tolerations = [t.model_dump(exclude_unset=True) for t in role.tolerations]
        if (
            any(contract.GPU_RESOURCE in c.resources.limits for c in role.group)
            and GPU_TOLERATION not in tolerations
        ):
            tolerations.append(GPU_TOLERATION)
        fields: Object = {
            "nodeSelector": dict(role.node_selector),
            "tolerations": tolerations,
            "affinity": role.affinity,
            "priorityClassName": role.priority_class_name,
            "imagePullSecrets": [secret.model_dump() for secret in role.image_pull_secrets],
            "serviceAccountName": role.service_account_name,
        }
        return {key: value for key, value in fields.items() if value}

    def _containers(self, role: Role) -> list[Object]:
        planned = self.plan.role(role.name)
        together = zip(role.group, planned.containers, planned.template, strict=True)
        return [self._container(role, *container) for container in together]

    def _container(
        self, role: Role, container: Container, planned: ContainerPlan, template: ContainerTemplate
    ) -> Object:
        image = container.image or self.spec.image
        if not image:
            raise InvalidExperiment(
                [
                    Problem(
                        f"spec.roles[{role.name}].image",
                        "this container has no image, which Kubernetes needs",
                        "set `spec.image`, or `image` here",
                    )
                ]
            )
        made: Object = {"name": container.name, "image": image}
        if container.image_pull_policy:
            made["imagePullPolicy"] = container.image_pull_policy
        split = len(container.command)
        for key, words in (("command", template.command[:split]), ("args", template.command[split:])):
            if words:
                made[key] = list(words)
        if self.workdir:
            made["workingDir"] = names.WORKDIR
        made["env"] = [
            {
                "name": name,
                **({"value": value} if isinstance(value, str) else {"valueFrom": _value_from(value)}),
            }
            for name, value in template.env.items()
        ]
        if container.env_from:
            made["envFrom"] = [source.model_dump(exclude_unset=True) for source in container.env_from]
        if planned.ports:
            made["ports"] = [{"containerPort": port} for port in planned.ports.values()]
        resources = container.resources.model_dump(exclude_unset=True)
        if resources:
            made["resources"] = resources
        made["volumeMounts"] = self._mounts(container)
        probe = self._probe(container, planned.ports)
        if probe:
            made["readinessProbe"] = probe
        made["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            **(container.security_context or {}),
        }
        for key in ("stdin", "tty"):
            if getattr(container, key):
                made[key] = True
        return merge(made, container.container_patch) if container.container_patch else made

    def _probe(self, container: Container, ports: Mapping[str, int]) -> Object | None:
        if container.readiness_probe is None:
            # The same check as on a laptop: does it listen on its port?
            port = next(iter(ports.values()), None)
            return {"tcpSocket": {"port": port}, "periodSeconds": 2} if port else None
        probe = container.readiness_probe.model_dump(exclude_unset=True)
        for action in ("httpGet", "tcpSocket"):
            if action in probe and isinstance(probe[action]["port"], str):
                probe[action] = probe[action] | {"port": ports[probe[action]["port"]]}
        return probe

    def _mounts(self, container: Container) -> list[Object]:
        own = [mount.model_dump(exclude_unset=True) for mount in container.volume_mounts]
        taken = {mount["mountPath"] for mount in own}
        ours: list[Object] = [
            {"name": "callsheet-run", "mountPath": names.RUN_FOLDER, "readOnly": True},
            {"name": "callsheet-keys", "mountPath": names.KEYS, "readOnly": True},
            {"name": "callsheet-tmp", "mountPath": "/tmp"},  # noqa: S108 - a volume of the pod's own
            {"name": "callsheet-shm", "mountPath": "/dev/shm"},  # noqa: S108 - likewise
        ]
        if self.spec.files:
            ours.append({"name": "callsheet-files", "mountPath": names.FILES, "readOnly": True})
        if self.workdir:
            ours.append({"name": "callsheet-workdir", "mountPath": names.WORKDIR, "readOnly": True})
        claim, path = self._claim()
        if claim:
            mount: Object = {"name": "callsheet-storage", "mountPath": names.STORAGE}
            ours.append(mount | ({"subPath": path} if path else {}))
        return [mount for mount in ours if mount["mountPath"] not in taken] + own

    def _claim(self) -> tuple[str, str]:
        """Claim and path of a `pvc://` storage; two empty strings for any other."""
        parts = urlsplit(self.spec.storage or "")
        return (parts.netloc, parts.path.strip("/")) if parts.scheme == "pvc" else ("", "")

    def _volumes(self, role: Role) -> list[Object]:
        name = self.experiment.name
        items = [{"key": names.ADDRESSES_FILE, "path": names.ADDRESSES_FILE}]
        volumes: list[Object] = [
            {"name": "callsheet-run", "configMap": {"name": names.config_map(name), "items": items}},
            {
                "name": "callsheet-keys",
                "secret": {"secretName": names.keys(name), "defaultMode": 0o440, "optional": True},
            },
            {"name": "callsheet-tmp", "emptyDir": {}},
            {"name": "callsheet-shm", "emptyDir": {"medium": "Memory"}},
        ]
        if self.spec.files:
            volumes.append({"name": "callsheet-files", "configMap": {"name": names.files(name)}})
        if self.workdir:
            volumes.append(
                {
                    "name": "callsheet-workdir",
                    "projected": {"sources": [packed.source() for packed in self.workdir]},
                }
            )
        claim, _ = self._claim()
        if claim:
            volumes.append({"name": "callsheet-storage", "persistentVolumeClaim": {"claimName": claim}})
        used = {mount.name for container in role.group for mount in container.volume_mounts}
        return volumes + [v.model_dump(exclude_unset=True) for v in self.spec.volumes if v.name in used]


def _value_from(ref: EnvRef) -> Object:
    if ref.source == "field":
        return {"fieldRef": {"fieldPath": ref.key}}
    if ref.source == "resource":
        of: Object = {"containerName": ref.name} if ref.name else {}
        return {"resourceFieldRef": of | {"resource": ref.key, "divisor": ref.divisor}}
    kind = "secretKeyRef" if ref.source == "secret" else "configMapKeyRef"
    return {kind: {"name": ref.name, "key": ref.key} | ({"optional": True} if ref.optional else {})}
