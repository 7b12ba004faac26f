"""The fields of an experiment as typed keywords, so that an editor completes them and mypy checks them.

Every key is a field of the schema under its Python name; `callsheet schema` and the reference page say what it
means. A part with fields of its own takes the model (`callsheet.spec`) or a mapping in the file's shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from callsheet.spec import experiment as model
from callsheet.spec import kubernetes

EnvValue = str | kubernetes.EnvSource
Env = Mapping[str, EnvValue] | Sequence[kubernetes.EnvVar]
"""Environment variables: ``{"NAME": "value"}``."""
Ports = str | Mapping[str, int | None]
"""One endpoint by name, or several with their ports; None lets one be chosen."""
Part = Mapping[str, Any]
"""A part of the experiment in the file's shape."""


class ContainerOptions(TypedDict, total=False):
    """What a container takes."""

    image: str | None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None
    command: Sequence[str]
    args: Sequence[str]
    env: Env
    env_from: Sequence[kubernetes.EnvFromSource | Part]
    binds: Sequence[Ports | model.Bind] | Mapping[str, int | None]
    connects: Sequence[str]
    exposes: Sequence[Ports | model.Expose] | Mapping[str, int | None]
    resources: kubernetes.ResourceRequirements | Part
    volume_mounts: Sequence[kubernetes.VolumeMount | Part]
    readiness_probe: kubernetes.Probe | Part | None
    security_context: Part | None
    stdin: bool
    tty: bool
    container_patch: Part


class RoleOptions(ContainerOptions, total=False):
    """What a role takes beside its container's fields. A group's containers are added with `Role.container`."""

    replicas: int
    scale: model.Scale | Part | None
    restart: model.Restart | Part
    termination_grace_period: str
    node_selector: Mapping[str, str]
    tolerations: Sequence[kubernetes.Toleration | Part]
    affinity: Part | None
    priority_class_name: str | None
    image_pull_secrets: Sequence[kubernetes.LocalObjectReference | Part]
    service_account_name: str | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    pod_patch: Part


class ExperimentOptions(TypedDict, total=False):
    """What an experiment takes beside its roles and its name."""

    image: str | None
    workdir: str | model.Workdir | Part
    storage: str | None
    encryption: bool
    env: Env
    files: Mapping[str, str]
    volumes: Sequence[kubernetes.Volume | Part]
    lifecycle: model.Lifecycle | Part


class LifecycleOptions(TypedDict, total=False):
    """When the run ends, and what remains of it."""

    success: Sequence[str]
    max_restarts: int | None
    ttl_after_finished: str | None
    deadline: str | None
    suspend: bool
    clean_pods: Literal["Running", "All", "None"]


class VolumeOptions(TypedDict, total=False):
    """The kinds of volume; exactly one is given."""

    empty_dir: kubernetes.EmptyDirVolume | Part
    host_path: kubernetes.HostPathVolume | Part
    secret: kubernetes.SecretVolume | Part
    config_map: kubernetes.ConfigMapVolume | Part
    persistent_volume_claim: kubernetes.ClaimVolume | Part
    nfs: kubernetes.NFSVolume | Part
    projected: Part
    downward_api: Part
    ephemeral: Part
    csi: Part
