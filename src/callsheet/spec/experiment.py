"""The experiment file as typed data: one class per mapping, one documented field per key."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from callsheet import contract
from callsheet.spec.kubernetes import (
    EnvFromSource,
    EnvVar,
    LocalObjectReference,
    Port,
    Probe,
    ResourceRequirements,
    Toleration,
    Volume,
    VolumeMount,
)
from callsheet.spec.model import FreeMapping, Model
from callsheet.spec.quantity import Duration

LABEL_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
LABEL_RULE = "lowercase letters, digits and hyphens, starting with a letter and not ending with a hyphen"
LONGEST_LABEL = 63
LONGEST_ROLE_OBJECT = 52
"""Of `<experiment>-<role>`: Kubernetes adds eleven characters to a StatefulSet's name for a label. Since a role has at
most 100,000 replicas, the host name of the last one fits into a label as well."""
_LABEL = {"pattern": LABEL_PATTERN, "maxLength": LONGEST_LABEL}

Count = Annotated[int, Field(ge=0, le=100_000)]
Label = Annotated[str, Field(json_schema_extra=_LABEL)]
"""A DNS label. `validate` checks it together with the graph, so that one bad name does not hide other mistakes."""


class Bind(Model):
    """A named port that a container listens on."""

    name: Label
    """The endpoint's name, a DNS label that is unique in the experiment. Others list it under `connects`."""
    port: Port | None = None
    """The port. If omitted, one is chosen, the same on every backend."""


class Expose(Bind):
    """A named port for people outside the experiment, such as a web page."""

    type: Literal["PortForward", "NodePort", "LoadBalancer", "Ingress"] = "PortForward"
    """How to reach it on Kubernetes. On a laptop it is always at the replica's own loopback address."""
    host: str | None = None
    """Host name of the Ingress."""


class Scale(Model):
    """The bounds of an elastic role."""

    min: Count
    """Minimum number of replicas."""
    max: Count
    """Maximum number of replicas."""


class Restart(Model):
    """What happens when a replica's main container ends."""

    policy: Literal["Always", "OnFailure", "Never"] = "OnFailure"
    """`OnFailure` restarts it after a non-zero exit, `Always` after every exit, `Never` not at all."""
    limit: Count = 10
    """How many restarts after failures a replica may use before it counts as failed."""


class Workdir(Model):
    """Your code."""

    path: str = "."
    """The folder, relative to the experiment file. It is the working directory on a laptop, and copied to a cluster."""
    exclude: list[str] = []
    """Patterns, as in .gitignore, of files that are not copied to a cluster. Unused on a laptop."""


class Lifecycle(Model):
    """When the run ends, and what happens then."""

    success: list[str] = []
    """Roles that must succeed: once all their replicas have exited with 0, the run has succeeded and the rest is stopped.
    If omitted, every role whose restart policy is not `Always` must succeed."""
    max_restarts: Count | None = None
    """How many restarts after failures the whole run may use before it fails. Unlimited if omitted."""
    ttl_after_finished: Duration | None = None
    """Delete the objects this long after the run has ended. Kubernetes only; on a laptop use `callsheet delete`."""
    deadline: Duration | None = None
    """The run fails if it takes longer than this."""
    suspend: bool = False
    """Create no pods until this becomes false. Kubernetes only."""
    clean_pods: Literal["Running", "All", "None"] = "Running"
    """Which pods are deleted when the run ends. Kubernetes only."""


class ContainerFields(Model):
    """The fields of a container, in a group or as the only one of its role."""

    image: str | None = None
    """Container image (default: the experiment's `image`). Kubernetes only."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When to pull the image. Kubernetes only."""
    command: list[str] = []
    """Program and first arguments. Placeholders such as `{index}` and `{endpoint.addr}` are filled in."""
    args: list[str] = []
    """More arguments, after `command`, with the same placeholders."""
    env: list[EnvVar] = []
    """Environment variables. They override the experiment's."""
    env_from: list[EnvFromSource] = []
    """Secrets and ConfigMaps whose keys all become variables. `env` overrides them."""
    binds: list[Bind] = []
    """Endpoints that this container listens on."""
    connects: list[Label] = []
    """Names of the endpoints that this container connects to."""
    exposes: list[Expose] = []
    """Endpoints for people outside the experiment. Other roles may connect to them too."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU, memory and devices."""
    volume_mounts: list[VolumeMount] = []
    """Volumes that this container mounts."""
    readiness_probe: Probe | None = None
    """How to tell that the container is ready. If omitted, it is ready when its ports listen or, without ports, when it runs."""
    security_context: FreeMapping | None = None
    """Security context of the container. Kubernetes only."""
    stdin: bool = False
    """Keep standard input open. Kubernetes only."""
    tty: bool = False
    """Allocate a terminal. Kubernetes only."""
    container_patch: FreeMapping = {}
    """Any Kubernetes fields, merged into the container last. Kubernetes only."""


class Container(ContainerFields):
    """One process of a group. The first is the main one: when it exits, the replica has ended."""

    name: Label
    """The container's name, a DNS label that is unique in its role."""

    @property
    def bound(self) -> list[Bind]:
        """Everything that it listens on."""
        return [*self.binds, *self.exposes]


class Role(ContainerFields):
    """A kind of process: one container, given inline, or a group of them under `containers`."""

    name: Label
    """The role's name, a DNS label that is unique in the experiment."""
    replicas: Count = 1
    """Number of replicas."""
    scale: Scale | None = None
    """Makes the role elastic: its size may change within these bounds while it runs."""
    restart: Restart = Restart()
    """What happens when a replica ends."""
    containers: list[Container] = []
    """A group of containers that share network and memory. Each has the fields that a one-container role has inline."""
    termination_grace_period: Duration = "30s"
    """Time between SIGTERM and SIGKILL."""
    node_selector: dict[str, str] = {}
    """Labels that a node must have to run the pods. Kubernetes only."""
    tolerations: list[Toleration] = []
    """Taints that the pods tolerate. Kubernetes only."""
    affinity: FreeMapping | None = None
    """Affinity rules of the pods. Kubernetes only."""
    priority_class_name: str | None = None
    """Priority class of the pods. Kubernetes only."""
    image_pull_secrets: list[LocalObjectReference] = []
    """Secrets for private registries. Kubernetes only."""
    service_account_name: str | None = None
    """Service account of the pods. Kubernetes only."""
    labels: dict[str, str] = {}
    """Labels of the pods. Kubernetes only."""
    annotations: dict[str, str] = {}
    """Annotations of the pods. Kubernetes only."""
    pod_patch: FreeMapping = {}
    """Any Kubernetes fields, merged into the pod last. Kubernetes only."""

    @property
    def group(self) -> tuple[Container, ...]:
        """The role's containers, the main one first; a one-container role is a group of one named like the role."""
        if self.containers:
            return tuple(self.containers)
        fields = {
            name: getattr(self, name) for name in self.model_fields_set & ContainerFields.model_fields.keys()
        }
        return (Container.model_construct(_fields_set={"name", *fields}, name=self.name, **fields),)

    @property
    def most(self) -> int:
        """The largest number of replicas that the role can have."""
        return max(self.replicas, self.scale.max if self.scale else 0)


class ExperimentSpec(Model):
    """What the experiment consists of."""

    image: str | None = None
    """Default image of all containers. Kubernetes only."""
    workdir: Workdir = Workdir()
    """Your code."""
    storage: str | None = None
    """Where to write results: `s3://bucket/prefix`, `gs://...`, `az://...`, `file:///folder` or `pvc://claim/path`.
    If omitted: the folder `runs/` on a laptop, nowhere on Kubernetes."""
    encryption: bool = True
    """Whether the data plane encrypts traffic and admits only processes of the same run. Set `false` only on networks that
    nobody else can reach."""
    env: list[EnvVar] = []
    """Environment variables of all containers. A container's own override them."""
    files: dict[str, str] = {}
    """Small files for all containers. `{files.config.py}` is the path of `config.py`."""
    volumes: list[Volume] = []
    """Volumes that containers can mount by name."""
    roles: Annotated[list[Role], Field(min_length=1)]
    """The roles."""
    lifecycle: Lifecycle = Lifecycle()
    """When the run ends, and what happens then."""


class Metadata(Model):
    """The object's name and labels. Keys that a cluster adds are accepted and ignored."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel)

    name: Label
    """The experiment's name, a DNS label."""
    namespace: str | None = None
    """Kubernetes namespace (default: that of the current context). Unused on a laptop."""
    labels: dict[str, str] = {}
    """Labels of the object."""
    annotations: dict[str, str] = {}
    """Annotations of the object."""


class Experiment(Model):
    """Roles wired by named endpoints, run as supervised processes or on Kubernetes."""

    api_version: Literal["callsheet.dev/v1alpha1"] = contract.API_VERSION
    """Version of this schema."""
    kind: Literal["Experiment"] = contract.KIND
    """Always `Experiment`."""
    metadata: Metadata
    """Name and labels."""
    spec: ExperimentSpec
    """What it consists of."""

    @model_validator(mode="before")
    @classmethod
    def _drop_status(cls, data: Any) -> Any:
        """A file read back from a cluster has a status; it says nothing about what to run."""
        if isinstance(data, dict) and "status" in data:
            return {key: value for key, value in data.items() if key != "status"}
        return data

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.metadata.name
