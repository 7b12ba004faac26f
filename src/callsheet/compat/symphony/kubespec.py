"""Symphony's specs for Kubernetes: container settings on a process, pod settings on a process or group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from callsheet.compat.symphony.base import no_counterpart
from callsheet.compat.symphony.spec import ExperimentSpec, ProcessGroupSpec, ProcessSpec
from callsheet.compat.symphony.volumes import KubeVolume, Mounts
from callsheet.compat.symphony.yml import KubeContainerYML, KubePodYML, plain
from callsheet.errors import UserError
from callsheet.sdk.values import quantity


class PodCalls(ABC):
    """The settings of a pod: on a process that is in no group, and on a group."""

    @abstractmethod
    def _pod(self, call: str) -> KubePodYML:
        """The pod that a call changes."""

    def restart_policy(self, policy: str) -> None:
        """Set the restart policy: Always, OnFailure or Never."""
        self._pod("restart_policy").data.child("spec")["restartPolicy"] = policy

    def add_label(self, key: str, val: str) -> None:
        """Add a label to the pod."""
        self._pod("add_label").data.child("metadata").child("labels")[key] = str(val)

    def add_labels(self, **kwargs: str) -> None:
        """Add labels to the pod."""
        for key, value in kwargs.items():
            self.add_label(key, value)

    def add_toleration(self, **kwargs: Any) -> None:
        """Tolerate a taint: ``add_toleration(key="x", operator="Exists", effect="NoExecute")``."""
        spec = self._pod("add_toleration").data.child("spec")
        spec["tolerations"] = [*spec.get("tolerations", []), kwargs]

    def node_selector(self, key: str, value: str) -> None:
        """A label that the node must have."""
        self._pod("node_selector").data.child("spec").child("nodeSelector")[key] = str(value)


class KubeProcessSpec(PodCalls, Mounts, ProcessSpec):
    """A process as a container; in no group, it is a pod of its own."""

    def __init__(
        self,
        name: str,
        *,
        container_image: str | None = None,
        standalone: bool = True,
        command: str | Sequence[str] | None = None,
        args: str | Sequence[Any] | None = None,
        env: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name)
        self.container_image = container_image
        self.standalone = standalone
        self.container_yml = KubeContainerYML(name, container_image)
        self._pod_yml = KubePodYML(name)
        self._volumes: dict[str, dict[str, Any]] = {}
        if command is not None:
            self.set_command(command)
        if args is not None:
            self.set_args(args)
        self.set_envs(env or {})

    @property
    def pod_yml(self) -> KubePodYML:
        """The pod's raw data; a process in a group has none of its own."""
        return self._pod("pod_yml")

    def _pod(self, call: str) -> KubePodYML:
        if self.process_group is not None:
            raise UserError(
                f"{call} belongs to the pod, and process {self.name!r} shares the pod of group {self.process_group.name!r}",
                fix=f"use {call} of the group {self.process_group.name!r}",
            )
        if not self.standalone:
            raise UserError(
                f"{call} belongs to the pod, and process {self.name!r} is made for a group (standalone=False)",
                fix=f"use {call} of the group, or make the process without standalone=False",
            )
        return self._pod_yml

    def set_command(self, command: str | Sequence[str]) -> None:
        """The program: its name, or a list of the program and its first arguments."""
        self.container_yml.data["command"] = _list(command)

    def set_args(self, args: str | Sequence[Any]) -> None:
        """The program's arguments."""
        self.container_yml.data["args"] = _list(args)

    def set_env(self, name: str, value: Any) -> None:
        """Set an environment variable."""
        others = [entry for entry in self.container_yml.data.get("env", []) if entry["name"] != name]
        self.container_yml.data["env"] = [*others, {"name": str(name), "value": str(value)}]

    def set_envs(self, di: Mapping[str, Any]) -> None:
        """Set environment variables."""
        for name, value in di.items():
            self.set_env(name, value)

    def mount_volume(self, volume: KubeVolume, mount_path: str) -> None:
        """Mount a volume under a path."""
        data = self.container_yml.data
        data["volumeMounts"] = [*data.get("volumeMounts", []), {"name": volume.name, "mountPath": mount_path}]
        self._volumes[volume.name] = volume.source

    def resource_request(self, cpu: Any = None, memory: Any = None, mem: Any = None) -> None:
        """Resources reserved for the process; `mem` is an alias of `memory`."""
        self._resources("requests", {"cpu": cpu, "memory": _either(memory, mem)})

    def resource_limit(self, cpu: Any = None, memory: Any = None, gpu: Any = None, mem: Any = None) -> None:
        """Resource limits of the process; `gpu` is nvidia.com/gpu."""
        self._resources("limits", {"cpu": cpu, "memory": _either(memory, mem), "nvidia.com/gpu": gpu})

    def _resources(self, key: str, given: Mapping[str, Any]) -> None:
        new = {name: quantity(value) for name, value in given.items() if value is not None}
        self.container_yml.data.child("resources").child(key).merge(new)

    def image_pull_policy(self, policy: str) -> None:
        """When the image is pulled: Always, Never or IfNotPresent."""
        self.container_yml.data["imagePullPolicy"] = policy

    def container_fields(self) -> dict[str, Any]:
        return self.container_yml.fields()

    def pod_fields(self) -> dict[str, Any]:
        return self._pod_yml.fields()

    def volumes(self) -> dict[str, dict[str, Any]]:
        return self._pod_yml.volumes() | self._volumes

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {
            "container_image": self.container_image,
            "standalone": self.standalone,
            "container_yml": plain(self.container_yml.data),
            "pod_yml": plain(self._pod_yml.data),
            "volumes": plain(self._volumes),
        }

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.container_image, self.standalone = di["container_image"], di["standalone"]
        self.container_yml.set_attr(di["container_yml"])
        self._pod_yml.set_attr(di["pod_yml"])
        self._volumes = dict(di["volumes"])


class KubeProcessGroupSpec(PodCalls, Mounts, ProcessGroupSpec):
    """A pod with one container per process. Container settings apply to all processes added so far."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = KubeProcessSpec

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.pod_yml = KubePodYML(name)

    def _pod(self, call: str) -> KubePodYML:
        return self.pod_yml

    def new_process(self, *args: Any, **kwargs: Any) -> Any:
        return super().new_process(*args, **kwargs | {"standalone": False})

    def add_process(self, process: ProcessSpec) -> None:
        if getattr(process, "standalone", False):
            raise UserError(
                f"process {process.name!r} is a pod of its own and cannot join the group {self.name!r}",
                fix="make it with standalone=False, or with new_process of the group",
            )
        super().add_process(process)

    def mount_volume(self, volume: KubeVolume, mount_path: str) -> None:
        """Mount a volume in every process of the group."""
        for process in self.list_processes():
            process.mount_volume(volume, mount_path)

    def image_pull_policy(self, policy: str) -> None:
        """Set it for every process of the group."""
        for process in self.list_processes():
            process.image_pull_policy(policy)

    def set_env(self, name: str, value: Any) -> None:
        """Set a variable in every process of the group."""
        self.set_envs({name: value})

    def set_envs(self, di: Mapping[str, Any]) -> None:
        """Set variables in every process of the group."""
        for process in self.list_processes():
            process.set_envs(di)

    def pod_fields(self) -> dict[str, Any]:
        return self.pod_yml.fields()

    def volumes(self) -> dict[str, dict[str, Any]]:
        return self.pod_yml.volumes()

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {"pod_yml": plain(self.pod_yml.data)}

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.pod_yml.set_attr(di["pod_yml"])


class KubeExperimentSpec(ExperimentSpec):
    """An experiment for Kubernetes."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = KubeProcessSpec
    _ProcessGroupClass: ClassVar[type[ProcessGroupSpec]] = KubeProcessGroupSpec
    expose_type: ClassVar[str] = "LoadBalancer"

    def __init__(
        self, name: str, port_range: Iterable[int] | None = None, secrets: Sequence[str] | None = None
    ) -> None:
        super().__init__(name, port_range)
        if secrets:
            raise no_counterpart(
                f"secrets={list(secrets)!r}",
                "an experiment refers to Secrets but never contains them",
                "make one with kubectl create secret generic NAME --from-file=..., "
                "then process.mount_secret('NAME', '/etc/secrets')",
            )


def _list(value: str | Sequence[Any]) -> list[str]:
    return [value] if isinstance(value, str) else [str(item) for item in value]


def _either(memory: Any, mem: Any) -> Any:
    if memory is not None and mem is not None:
        raise UserError(f"both memory={memory!r} and mem={mem!r} are given", fix="give one of them")
    return memory if mem is None else mem
