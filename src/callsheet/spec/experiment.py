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
LABEL_RULE = "lower-case letters, digits and hyphens, a letter first, no hyphen last"
LONGEST_LABEL = 63
LONGEST_ROLE_OBJECT = 52
"""Of `<experiment>-<role>`: Kubernetes adds eleven characters to a StatefulSet's name for a label. Since a role has at
most 100,000 replicas, the host name of the last one fits into a label as well."""
_LABEL = {"pattern": LABEL_PATTERN, "maxLength": LONGEST_LABEL}

Count = Annotated[int, Field(ge=0, le=100_000)]
Label = Annotated[str, Field(json_schema_extra=_LABEL)]
"""A DNS label. `validate` checks it beside the graph, so that one bad name does not hide other mistakes."""


class Bind(Model):
    """A named port that a container listens on."""

    name: Label
    """The endpoint's name, unique in the experiment; a DNS label. Others write it under `connects`."""
    port: Port | None = None
    """The port; without one, the same port is chosen on every backend."""


class Expose(Bind):
    """A named port that people outside the experiment reach, such as a web page."""

    type: Literal["PortForward", "NodePort", "LoadBalancer", "Ingress"] = "PortForward"
    """How it is reached on Kubernetes. On a laptop it is always the replica's own loopback address."""
    host: str | None = None
    """Host name of the Ingress."""


class Scale(Model):
    """The bounds of an elastic role."""

    min: Count
    """Fewest replicas."""
    max: Count
    """Most replicas."""


class Restart(Model):
    """What happens when a replica's main container ends."""

    policy: Literal["Always", "OnFailure", "Never"] = "OnFailure"
    """`OnFailure` starts it again after a non-zero exit; `Always` after every exit; `Never` not at all."""
    limit: Count = 10
    """How often one replica may be started again after a failure before it counts as failed."""


class Workdir(Model):
    """The user's code."""

    path: str = "."
    """The folder, relative to the experiment file. The working directory on a laptop; carried along to a cluster."""
    exclude: list[str] = []
    """Patterns, as in .gitignore, of what is not carried along. Unused on a laptop."""


class Lifecycle(Model):
    """When the run ends, and what remains of it."""

    success: list[str] = []
    """The run has succeeded when every replica of each of these roles ended with 0; the rest is then stopped.
    When empty: all roles whose restart policy is not `Always`."""
    max_restarts: Count | None = None
    """How many restarts after failures the whole run may use before it fails; unlimited when absent."""
    ttl_after_finished: Duration | None = None
    """Delete the objects this long after the end. Kubernetes only: on a laptop `callsheet delete` does it."""
    deadline: Duration | None = None
    """The run fails when it takes longer than this."""
    suspend: bool = False
    """Create nothing until this becomes false. Kubernetes only."""
    clean_pods: Literal["Running", "All", "None"] = "Running"
    """Which pods are deleted at the end. Kubernetes only."""


class ContainerFields(Model):
    """What a container takes, whether it stands in a group or is its role's only one."""

    image: str | None = None
    """Container image; the experiment's `image` when absent. Kubernetes only."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the image is pulled. Kubernetes only."""
    command: list[str] = []
    """Program and first arguments. `{index}`, `{endpoint.addr}` and the other words are filled in."""
    args: list[str] = []
    """More arguments, after `command`; the same words are filled in."""
    env: list[EnvVar] = []
    """Environment variables; they win over the experiment's."""
    env_from: list[EnvFromSource] = []
    """Secrets and ConfigMaps whose keys all become variables; `env` wins over them."""
    binds: list[Bind] = []
    """The endpoints that this container listens on."""
    connects: list[Label] = []
    """Names of the endpoints that this container talks to."""
    exposes: list[Expose] = []
    """Endpoints for people outside the experiment; other roles may connect to them too."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU, memory and devices."""
    volume_mounts: list[VolumeMount] = []
    """Volumes that this container sees."""
    readiness_probe: Probe | None = None
    """How to tell that the container is ready. Without one: its bound ports listen, or, with none, it is alive."""
    security_context: FreeMapping | None = None
    """Kubernetes' security context of the container. Kubernetes only."""
    stdin: bool = False
    """Keep standard input open. Kubernetes only."""
    tty: bool = False
    """Give it a terminal. Kubernetes only."""
    container_patch: FreeMapping = {}
    """Raw Kubernetes, merged into the container last. Kubernetes only."""


class Container(ContainerFields):
    """One process of a group. The first is the main one: when it ends, the replica has ended."""

    name: Label
    """The container's name, unique in its role; a DNS label."""

    @property
    def bound(self) -> list[Bind]:
        """Everything that it listens on."""
        return [*self.binds, *self.exposes]


class Role(ContainerFields):
    """A kind of process. It has one container, given inline, or a group under `containers`."""

    name: Label
    """The role's name, unique in the experiment; a DNS label."""
    replicas: Count = 1
    """How many members the role has."""
    scale: Scale | None = None
    """Makes the role elastic: `replicas` may change within these bounds while it runs."""
    restart: Restart = Restart()
    """What happens when a replica ends."""
    containers: list[Container] = []
    """A group: containers that share network and memory. Each takes what a one-container role takes inline."""
    termination_grace_period: Duration = "30s"
    """Time between SIGTERM and SIGKILL."""
    node_selector: dict[str, str] = {}
    """Labels that a node must have. Kubernetes only."""
    tolerations: list[Toleration] = []
    """Taints that the pods may live with. Kubernetes only."""
    affinity: FreeMapping | None = None
    """Kubernetes' affinity rules. Kubernetes only."""
    priority_class_name: str | None = None
    """Priority of the pods. Kubernetes only."""
    image_pull_secrets: list[LocalObjectReference] = []
    """Secrets for private registries. Kubernetes only."""
    service_account_name: str | None = None
    """Service account of the pods. Kubernetes only."""
    labels: dict[str, str] = {}
    """Labels of the pods. Kubernetes only."""
    annotations: dict[str, str] = {}
    """Annotations of the pods. Kubernetes only."""
    pod_patch: FreeMapping = {}
    """Raw Kubernetes, merged into the pod last: nothing is out of reach. Kubernetes only."""

    @property
    def group(self) -> tuple[Container, ...]:
        """The role's containers, the main one first; a one-container role is a group of one named like the role."""
        if self.containers:
            return tuple(self.containers)
        fields = {
            name: getattr(self, name)
            for name in ContainerFields.model_fields
            if name in self.model_fields_set
        }
        return (Container.model_construct(_fields_set={"name", *fields}, name=self.name, **fields),)

    @property
    def most(self) -> int:
        """The largest number of replicas that the role may have."""
        return max(self.replicas, self.scale.max if self.scale else 0)


class ExperimentSpec(Model):
    """What the experiment is made of."""

    image: str | None = None
    """Default image of every container. Needed on Kubernetes only."""
    workdir: Workdir = Workdir()
    """The user's code."""
    storage: str | None = None
    """Where results go: `s3://bucket/prefix`, `gs://...`, `az://...`, `file:///folder`, `pvc://claim/path`.
    Without it: the folder `runs/` on a laptop, nothing on Kubernetes."""
    encryption: bool = True
    """Whether the data plane encrypts what crosses the network, and admits the run's own processes alone. `false` is for
    networks that nobody else can reach."""
    env: list[EnvVar] = []
    """Environment variables of every container; a container's own win."""
    files: dict[str, str] = {}
    """Small files given to every container; the path of `config.py` is `{files.config.py}`."""
    volumes: list[Volume] = []
    """Volumes that containers mount by name."""
    roles: Annotated[list[Role], Field(min_length=1)]
    """The roles."""
    lifecycle: Lifecycle = Lifecycle()
    """When the run ends, and what remains of it."""


class Metadata(Model):
    """The object's name and labels. Keys that a cluster fills in are accepted and dropped."""

    model_config = ConfigDict(extra="ignore", alias_generator=to_camel)

    name: Label
    """The experiment's name; a DNS label."""
    namespace: str | None = None
    """Kubernetes namespace; the context's when absent. Unused on a laptop."""
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
    """What it is made of."""

    @model_validator(mode="before")
    @classmethod
    def _drop_status(cls, data: Any) -> Any:
        """A file read back from a cluster carries a status; it says nothing about what to run."""
        if isinstance(data, dict) and "status" in data:
            return {key: value for key, value in data.items() if key != "status"}
        return data

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.metadata.name
