"""The parts of an experiment whose shape is Kubernetes' own: environment sources, volumes, probes, tolerations.

The local backend uses what makes sense on one machine (see `docs/reference/local-backend.md`); the rest is checked and
kept.
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
    """If true, a missing key is no error and leaves the variable unset."""


class FieldRef(Model):
    """A field of the replica's pod."""

    field_path: str
    """For example `metadata.name`, `metadata.namespace`, `status.podIP`, `spec.nodeName` or `metadata.labels['x']`."""
    api_version: str = "v1"
    """Version of the pod's schema that the path refers to."""


class ResourceFieldRef(Model):
    """A resource of one container, as a number."""

    resource: str
    """For example `limits.cpu` or `requests.memory`."""
    container_name: str | None = None
    """The container (default: the one that declares the variable)."""
    divisor: Quantity = "1"
    """Unit of the result, which is rounded up: `1Mi` gives memory in MiB."""


class EnvSource(Model):
    """Where the value of a variable comes from. Set exactly one of the fields."""

    secret_key_ref: KeyRef | None = None
    """A key of a Secret."""
    config_map_key_ref: KeyRef | None = None
    """A key of a ConfigMap."""
    field_ref: FieldRef | None = None
    """A field of the pod."""
    resource_field_ref: ResourceFieldRef | None = None
    """A resource of a container."""


class EnvVar(Model):
    """An environment variable with either `value` or `valueFrom`."""

    name: str
    """Name of the variable. Names that start with `CALLSHEET_` are reserved."""
    value: str | None = None
    """The value. Placeholders such as `{index}` and `{endpoint.addr}` are filled in. Quote numbers."""
    value_from: EnvSource | None = None
    """Read the value from a Secret, a ConfigMap or the pod itself."""


class SourceRef(Model):
    """A whole Secret or ConfigMap."""

    name: str
    """Its name."""
    optional: bool = False
    """If true, it may be missing."""


class EnvFromSource(Model):
    """All keys of a Secret or a ConfigMap as environment variables."""

    prefix: str = ""
    """Prefix for the names of the variables."""
    config_map_ref: SourceRef | None = None
    """The ConfigMap to read."""
    secret_ref: SourceRef | None = None
    """The Secret to read."""


class ResourceRequirements(Model):
    """Resource requests and limits of a container."""

    requests: dict[str, Quantity] = {}
    """What the scheduler reserves: `cpu`, `memory`, `ephemeral-storage` or a device. Not enforced on a laptop."""
    limits: dict[str, Quantity] = {}
    """What it may use at most. `nvidia.com/gpu: n` assigns GPUs on both backends; the others work on Kubernetes only."""


class ExecAction(Model):
    """A command whose exit code is the answer."""

    command: list[str]
    """Runs in the container with its environment; exit code 0 means success."""


class HTTPGetAction(Model):
    """An HTTP request. A status from 200 to 399 means success."""

    path: str = "/"
    """Path to request."""
    port: int | str
    """Port number, or the name of one of the container's endpoints."""
    host: str | None = None
    """Host to connect to (default: the replica's own address)."""
    scheme: Literal["HTTP", "HTTPS"] = "HTTP"
    """Protocol. Certificates are not verified."""


class TCPSocketAction(Model):
    """A TCP connection. Opening it means success."""

    port: int | str
    """Port number, or the name of one of the container's endpoints."""
    host: str | None = None
    """Host to connect to (default: the replica's own address)."""


class Probe(Model):
    """A check that decides whether a container is ready. Set exactly one of `exec`, `httpGet` and `tcpSocket`."""

    exec: ExecAction | None = None
    """Run a command."""
    http_get: HTTPGetAction | None = None
    """Send an HTTP request."""
    tcp_socket: TCPSocketAction | None = None
    """Open a TCP connection."""
    initial_delay_seconds: Annotated[int, Field(ge=0)] = 0
    """Seconds from the start to the first check."""
    period_seconds: Annotated[int, Field(ge=1)] = 10
    """Seconds between two checks. On a laptop they are more frequent until the container is ready for the first time."""
    timeout_seconds: Annotated[int, Field(ge=1)] = 1
    """Seconds after which a check counts as failed."""
    success_threshold: Annotated[int, Field(ge=1)] = 1
    """How many checks in a row must succeed for the container to be ready."""
    failure_threshold: Annotated[int, Field(ge=1)] = 3
    """How many checks in a row must fail for the container to be unready again."""


class Toleration(Model):
    """A taint that the replica's pod tolerates."""

    key: str | None = None
    """The taint's key. If omitted (with `operator: Exists`), every key."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """`Equal` compares the value; `Exists` does not."""
    value: str | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect. If omitted, every effect."""
    toleration_seconds: int | None = None
    """How many seconds a `NoExecute` taint is tolerated. If omitted, forever."""


class LocalObjectReference(Model):
    """The name of an object in the same namespace."""

    name: str
    """Its name."""


class EmptyDirVolume(Model):
    """An empty folder that exists as long as the replica."""

    medium: Literal["", "Memory"] = ""
    """`Memory` keeps it in RAM."""
    size_limit: Quantity | None = None
    """Maximum size. Not enforced on a laptop."""


class HostPathVolume(Model):
    """A path on the machine itself."""

    path: str
    """Absolute path on the node."""
    type: str = ""
    """What must be there: `Directory`, `DirectoryOrCreate`, `File`, ... If empty, nothing is checked."""


class KeyToPath(Model):
    """The path of one key's file."""

    key: str
    """The key."""
    path: str
    """Relative path of its file."""
    mode: int | None = None
    """Permission bits of the file."""


class SecretVolume(Model):
    """The keys of a Secret as files. On a laptop: the folder `.callsheet/secrets/NAME`."""

    secret_name: str
    """Name of the Secret."""
    items: list[KeyToPath] = []
    """Only these keys. If empty, all of them."""
    default_mode: int | None = None
    """Permission bits of the files."""
    optional: bool = False
    """If true, it may be missing."""


class ConfigMapVolume(Model):
    """The keys of a ConfigMap as files. On a laptop: the folder `.callsheet/configmaps/NAME`."""

    name: str
    """Name of the ConfigMap."""
    items: list[KeyToPath] = []
    """Only these keys. If empty, all of them."""
    default_mode: int | None = None
    """Permission bits of the files."""
    optional: bool = False
    """If true, it may be missing."""


class ClaimVolume(Model):
    """A PersistentVolumeClaim. On a laptop: the folder `.callsheet/claims/NAME`, kept between runs."""

    claim_name: str
    """Name of the claim."""
    read_only: bool = False
    """Mount it read-only."""


class NFSVolume(Model):
    """A folder on an NFS server. Kubernetes only."""

    server: str
    """Host of the server."""
    path: str
    """Exported path on the server."""
    read_only: bool = False
    """Mount it read-only."""


class Volume(Model):
    """A named volume of exactly one kind."""

    name: str
    """The name that `volumeMounts` refer to. `{mounts.NAME}` is its path inside a container."""
    empty_dir: EmptyDirVolume | None = None
    """An empty folder that exists as long as the replica."""
    host_path: HostPathVolume | None = None
    """A path on the machine."""
    secret: SecretVolume | None = None
    """A Secret."""
    config_map: ConfigMapVolume | None = None
    """A ConfigMap."""
    persistent_volume_claim: ClaimVolume | None = None
    """A PersistentVolumeClaim."""
    nfs: NFSVolume | None = None
    """An NFS folder."""
    projected: FreeMapping | None = None
    """Several sources combined in one folder. Kubernetes only."""
    downward_api: Annotated[FreeMapping | None, Field(alias="downwardAPI")] = None
    """Fields of the pod as files. Kubernetes only."""
    ephemeral: FreeMapping | None = None
    """A claim that is created for the pod. Kubernetes only."""
    csi: FreeMapping | None = None
    """A volume of a storage driver. Kubernetes only."""


class VolumeMount(Model):
    """Where a container mounts a volume."""

    name: str
    """Name of the volume."""
    mount_path: str
    """Absolute path inside the container. Nothing can be mounted on a laptop: use `{mounts.NAME}`, which works on both."""
    sub_path: str = ""
    """Mount this folder of the volume instead of its root."""
    read_only: bool = False
    """Mount it read-only. Not enforced on a laptop."""
