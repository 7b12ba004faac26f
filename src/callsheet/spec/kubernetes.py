"""The parts of an experiment whose shape is Kubernetes' own: environment sources, volumes, probes, tolerations.

The local backend acts on what has a meaning on one machine (`docs/reference/local-backend.md` says what); the
rest is carried, checked and shown.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from callsheet.spec.model import FreeMapping, Model
from callsheet.spec.quantity import Quantity

Port = Annotated[int, Field(ge=1, le=65535)]


class KeyRef(Model):
    """One key of a Secret or a ConfigMap."""

    name: str
    """Name of the Secret or ConfigMap. On a laptop: the folder `.callsheet/secrets/NAME` or
    `.callsheet/configmaps/NAME` in the working directory, one file per key."""
    key: str
    """The key inside it."""
    optional: bool = False
    """When true, a missing key leaves the variable unset instead of being an error."""


class FieldRef(Model):
    """A field of the replica's pod."""

    field_path: str
    """For example `metadata.name`, `metadata.namespace`, `status.podIP`, `spec.nodeName`, `metadata.labels['x']`."""
    api_version: str = "v1"
    """Version of the pod's schema that the path refers to."""


class ResourceFieldRef(Model):
    """A resource of one container, as a number."""

    resource: str
    """For example `limits.cpu` or `requests.memory`."""
    container_name: str | None = None
    """The container; the one that declares the variable when absent."""
    divisor: Quantity = "1"
    """The unit of the result, rounded up: `1Mi` gives memory in MiB."""


class EnvSource(Model):
    """Where a variable's value comes from. Exactly one of the fields is given."""

    secret_key_ref: KeyRef | None = None
    """A key of a Secret."""
    config_map_key_ref: KeyRef | None = None
    """A key of a ConfigMap."""
    field_ref: FieldRef | None = None
    """A field of the pod."""
    resource_field_ref: ResourceFieldRef | None = None
    """A resource of a container."""


class EnvVar(Model):
    """One environment variable: `value`, or `valueFrom`."""

    name: str
    """Name of the variable. Names that begin with `CALLSHEET_` are the contract's own."""
    value: str | None = None
    """The value; `{index}`, `{endpoint.addr}` and the other words are filled in. Numbers need quotes."""
    value_from: EnvSource | None = None
    """Take the value from a Secret, a ConfigMap, or the pod itself."""


class SourceRef(Model):
    """A Secret or a ConfigMap as a whole."""

    name: str
    """Its name."""
    optional: bool = False
    """When true, it may be missing."""


class EnvFromSource(Model):
    """Every key of a Secret or a ConfigMap as an environment variable."""

    prefix: str = ""
    """Put before each key."""
    config_map_ref: SourceRef | None = None
    """The ConfigMap to read."""
    secret_ref: SourceRef | None = None
    """The Secret to read."""


class ResourceRequirements(Model):
    """What a container asks for and what it may use at most."""

    requests: dict[str, Quantity] = {}
    """What the scheduler sets aside: `cpu`, `memory`, `ephemeral-storage`, or a device. Not enforced on a laptop."""
    limits: dict[str, Quantity] = {}
    """The most it may use. `nvidia.com/gpu: n` hands out GPUs on both backends; the others act on Kubernetes only."""


class ExecAction(Model):
    """A command that answers with its exit code."""

    command: list[str]
    """Run in the container with its environment; 0 means yes."""


class HTTPGetAction(Model):
    """An HTTP request that succeeds with a status from 200 to 399."""

    path: str = "/"
    """Path to ask for."""
    port: int | str
    """Port number, or the name of one of the container's endpoints."""
    host: str | None = None
    """Host to connect to; the replica's own address when absent."""
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"
    """Protocol. Certificates are not checked."""


class TCPSocketAction(Model):
    """A connection that can be opened."""

    port: int | str
    """Port number, or the name of one of the container's endpoints."""
    host: str | None = None
    """Host to connect to; the replica's own address when absent."""


class Probe(Model):
    """A question that decides whether a container is ready. Exactly one of `exec`, `httpGet`, `tcpSocket`."""

    exec: ExecAction | None = None
    """Run a command."""
    http_get: HTTPGetAction | None = None
    """Ask over HTTP."""
    tcp_socket: TCPSocketAction | None = None
    """Open a connection."""
    initial_delay_seconds: Annotated[int, Field(ge=0)] = 0
    """Wait this long after the start before the first question."""
    period_seconds: Annotated[int, Field(ge=1)] = 10
    """Time between two questions. On a laptop the first ones come faster, until the container is ready once."""
    timeout_seconds: Annotated[int, Field(ge=1)] = 1
    """An answer that takes longer is a no."""
    success_threshold: Annotated[int, Field(ge=1)] = 1
    """How many yeses in a row make it ready."""
    failure_threshold: Annotated[int, Field(ge=1)] = 3
    """How many noes in a row make it unready again."""


class Toleration(Model):
    """A taint that the replica's pod may live with."""

    key: str | None = None
    """The taint's key; every key when absent (with `operator: Exists`)."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """`Equal` compares the value; `Exists` does not."""
    value: str | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; every effect when absent."""
    toleration_seconds: int | None = None
    """How long a `NoExecute` taint is tolerated; for ever when absent."""


class LocalObjectReference(Model):
    """The name of an object in the same namespace."""

    name: str
    """Its name."""


class EmptyDirVolume(Model):
    """A folder that lives as long as the replica."""

    medium: Literal["", "Memory"] = ""
    """`Memory` keeps it in RAM."""
    size_limit: Quantity | None = None
    """The most it may hold; not enforced on a laptop."""


class HostPathVolume(Model):
    """A path of the machine itself."""

    path: str
    """Absolute path on the node."""
    type: str = ""
    """What must be there: `Directory`, `DirectoryOrCreate`, `File`, ... ; nothing is checked when empty."""


class KeyToPath(Model):
    """Under which path one key appears."""

    key: str
    """The key."""
    path: str
    """Relative path of its file."""
    mode: int | None = None
    """Permission bits of the file."""


class SecretVolume(Model):
    """A Secret's keys as files. On a laptop: the folder `.callsheet/secrets/NAME` itself."""

    secret_name: str
    """Name of the Secret."""
    items: list[KeyToPath] = []
    """Only these keys; all when empty."""
    default_mode: int | None = None
    """Permission bits of the files."""
    optional: bool = False
    """When true, it may be missing."""


class ConfigMapVolume(Model):
    """A ConfigMap's keys as files. On a laptop: the folder `.callsheet/configmaps/NAME` itself."""

    name: str
    """Name of the ConfigMap."""
    items: list[KeyToPath] = []
    """Only these keys; all when empty."""
    default_mode: int | None = None
    """Permission bits of the files."""
    optional: bool = False
    """When true, it may be missing."""


class ClaimVolume(Model):
    """A PersistentVolumeClaim. On a laptop: the folder `.callsheet/claims/NAME`, kept between runs."""

    claim_name: str
    """Name of the claim."""
    read_only: bool = False
    """Mount it read-only."""


class NFSVolume(Model):
    """A folder of an NFS server. Kubernetes only."""

    server: str
    """Host of the server."""
    path: str
    """Path that the server exports."""
    read_only: bool = False
    """Mount it read-only."""


class Volume(Model):
    """A named volume of exactly one kind."""

    name: str
    """The name that `volumeMounts` refer to; `{mounts.NAME}` is its path inside a container."""
    empty_dir: EmptyDirVolume | None = None
    """A folder that lives as long as the replica."""
    host_path: HostPathVolume | None = None
    """A path of the machine."""
    secret: SecretVolume | None = None
    """A Secret."""
    config_map: ConfigMapVolume | None = None
    """A ConfigMap."""
    persistent_volume_claim: ClaimVolume | None = None
    """A claim."""
    nfs: NFSVolume | None = None
    """An NFS folder."""
    projected: FreeMapping | None = None
    """Several sources in one folder. Kubernetes only."""
    downward_api: Annotated[FreeMapping | None, Field(alias="downwardAPI")] = None
    """The pod's fields as files. Kubernetes only."""
    ephemeral: FreeMapping | None = None
    """A claim made for the pod. Kubernetes only."""
    csi: FreeMapping | None = None
    """A storage driver's volume. Kubernetes only."""


class VolumeMount(Model):
    """Where a container sees a volume."""

    name: str
    """Name of the volume."""
    mount_path: str
    """Absolute path inside the container. A laptop cannot mount: use `{mounts.NAME}`, which is right on both."""
    sub_path: str = ""
    """A folder inside the volume instead of its root."""
    read_only: bool = False
    """Mount it read-only. Not enforced on a laptop."""
