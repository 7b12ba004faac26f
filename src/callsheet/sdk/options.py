"""The fields of an experiment as typed keywords, so that an editor completes them and mypy checks them.

Every key is a field of the schema under its Python name; `callsheet schema` and the reference page describe it. A field
that has fields of its own takes the model (`callsheet.spec`) or a mapping in the file's shape.
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
FieldMapping = Mapping[str, Any]
"""Fields in the file's shape."""


class ContainerOptions(TypedDict, total=False):
    """What a container takes."""

    image: str | None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None
    command: Sequence[str]
    args: Sequence[str]
    env: Env
    env_from: Sequence[kubernetes.EnvFromSource | FieldMapping]
    binds: Sequence[Ports | model.Bind] | Mapping[str, int | None]
    connects: Sequence[str]
    exposes: Sequence[Ports | model.Expose] | Mapping[str, int | None]
    resources: kubernetes.ResourceRequirements | FieldMapping
    volume_mounts: Sequence[kubernetes.VolumeMount | FieldMapping]
    readiness_probe: kubernetes.Probe | FieldMapping | None
    security_context: FieldMapping | None
    stdin: bool
    tty: bool
    container_patch: FieldMapping


class RoleOptions(ContainerOptions, total=False):
    """What a role takes besides its container's fields. A group's containers are added with `Role.container`."""

    replicas: int
    scale: model.Scale | FieldMapping | None
    restart: model.Restart | FieldMapping
    termination_grace_period: str
    node_selector: Mapping[str, str]
    tolerations: Sequence[kubernetes.Toleration | FieldMapping]
    affinity: FieldMapping | None
    priority_class_name: str | None
    image_pull_secrets: Sequence[kubernetes.LocalObjectReference | FieldMapping]
    service_account_name: str | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    pod_patch: FieldMapping


class ExperimentOptions(TypedDict, total=False):
    """What an experiment takes besides its roles and its name."""

    image: str | None
    workdir: str | model.Workdir | FieldMapping
    storage: str | None
    encryption: bool
    env: Env
    files: Mapping[str, str]
    volumes: Sequence[kubernetes.Volume | FieldMapping]
    lifecycle: model.Lifecycle | FieldMapping


class LifecycleOptions(TypedDict, total=False):
    """When the run ends, and what happens then."""

    success: Sequence[str]
    max_restarts: int | None
    ttl_after_finished: str | None
    deadline: str | None
    suspend: bool
    clean_pods: Literal["Running", "All", "None"]


class VolumeOptions(TypedDict, total=False):
    """The kinds of volume; set exactly one."""

    empty_dir: kubernetes.EmptyDirVolume | FieldMapping
    host_path: kubernetes.HostPathVolume | FieldMapping
    secret: kubernetes.SecretVolume | FieldMapping
    config_map: kubernetes.ConfigMapVolume | FieldMapping
    persistent_volume_claim: kubernetes.ClaimVolume | FieldMapping
    nfs: kubernetes.NFSVolume | FieldMapping
    projected: FieldMapping
    downward_api: FieldMapping
    ephemeral: FieldMapping
    csi: FieldMapping
