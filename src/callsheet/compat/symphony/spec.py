"""Symphony's specs: processes, groups of processes, experiments, and how they are wired."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from callsheet.compat.symphony.base import BaseSpec, check_name
from callsheet.errors import UserError
from callsheet.sdk.experiment import calling_folder

if TYPE_CHECKING:
    from callsheet.sdk import Experiment

Services = str | Iterable[str] | Mapping[str, int | None]
"""What binds, connects and exposes take: a name, names, or names with ports."""


def _services(spec: Services) -> dict[str, int | None]:
    if isinstance(spec, str):
        spec = [spec]
    pairs = dict(spec) if isinstance(spec, Mapping) else dict.fromkeys(spec)
    return {check_name("service", name): port for name, port in pairs.items()}


class ProcessSpec(BaseSpec):
    """One process."""

    kind = "process"
    restart: ClassVar[str | None] = None
    """Default restart policy; None for Callsheet's own default."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.binded_services: dict[str, int | None] = {}
        self.connected_services: dict[str, None] = {}
        self.exposed_services: dict[str, int | None] = {}
        self.process_group: ProcessGroupSpec | None = None

    def binds(self, spec: Services) -> None:
        """Listen on services: ``binds("a")``, ``binds(["a", "b"])``, ``binds({"a": 9999, "b": None})``."""
        self.binded_services.update(_services(spec))

    def connects(self, spec: Services) -> None:
        """Connect to services that others bind; the port is chosen where the service is bound."""
        services = _services(spec)
        for name, port in services.items():
            if port is not None:
                raise UserError(
                    f"process {self.name!r} connects to {name!r} with port {port}",
                    fix=f"give the port where it is bound: binds({{{name!r}: {port}}})",
                )
        self.connected_services.update(dict.fromkeys(services))

    def exposes(self, spec: Services) -> None:
        """Listen on services that can be reached from outside the experiment."""
        self.exposed_services.update(_services(spec))

    def container_fields(self) -> dict[str, Any]:
        """Image, command, environment and so on, as keywords of a Callsheet container."""
        return {}

    def pod_fields(self) -> dict[str, Any]:
        """The pod settings of a process outside a group, as keywords of a Callsheet role."""
        return {"restart": {"policy": self.restart}} if self.restart else {}

    def volumes(self) -> dict[str, dict[str, Any]]:
        """The volumes that it mounts, by name, in Kubernetes' shape."""
        return {}

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {
            "binded_services": dict(self.binded_services),
            "connected_services": list(self.connected_services),
            "exposed_services": dict(self.exposed_services),
        }

    def _load_dict(self, di: dict[str, Any]) -> None:
        self.binds(di["binded_services"])
        self.connects(di["connected_services"])
        self.exposes(di["exposed_services"])


class LocalProcessSpec(ProcessSpec, ABC):
    """A process on this machine: a tmux window, subprocess or docker-compose service. Callsheet supervises all three."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.env: dict[str, str] = {}

    def set_env(self, name: str, value: Any) -> None:
        """Set an environment variable."""
        self.env[str(name)] = str(value)

    def set_envs(self, di: Mapping[str, Any]) -> None:
        """Set environment variables."""
        for name, value in di.items():
            self.set_env(name, value)

    @abstractmethod
    def command(self) -> list[str]:
        """Program and arguments."""

    def container_fields(self) -> dict[str, Any]:
        env = [{"name": name, "value": value} for name, value in self.env.items()]
        return {"command": self.command()} | ({"env": env} if env else {})

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {"env": dict(self.env)}

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.set_envs(di["env"])


class ProcessContainer(BaseSpec, ABC):
    """What holds processes: a group, or an experiment."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = ProcessSpec

    @abstractmethod
    def add_process(self, process: ProcessSpec) -> None:
        """Add a process."""

    def add_processes(self, processes: Iterable[ProcessSpec]) -> None:
        """Add processes."""
        for process in processes:
            self.add_process(process)

    def new_process(self, *args: Any, **kwargs: Any) -> Any:
        """Create a process and add it."""
        process = self._ProcessClass(*args, **kwargs)
        self.add_process(process)
        return process


class ProcessGroupSpec(ProcessContainer):
    """Processes that share a machine; on Kubernetes, the containers of one pod."""

    kind = "process group"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.processes: dict[str, ProcessSpec] = {}
        self.experiment: ExperimentSpec | None = None

    def add_process(self, process: ProcessSpec) -> None:
        """Add a process to the group."""
        if process.process_group is not None:
            raise UserError(
                f"process {process.name!r} is already in the group {process.process_group.name!r}",
                fix="make a process for each group",
            )
        if process.name in self.processes:
            raise UserError(
                f"group {self.name!r} already has a process {process.name!r}", fix="choose another name"
            )
        process.process_group = self
        self.processes[process.name] = process

    def get_process(self, name: str) -> Any:
        """The process of that name."""
        return _get(self.processes, name, f"process in the group {self.name!r}")

    def list_processes(self) -> list[Any]:
        """All processes, in the order in which they were added."""
        return list(self.processes.values())

    def pod_fields(self) -> dict[str, Any]:
        """The group's pod settings, as keywords of a Callsheet role."""
        restart = self._ProcessClass.restart
        return {"restart": {"policy": restart}} if restart else {}

    def volumes(self) -> dict[str, dict[str, Any]]:
        """Volumes declared on the group."""
        return {}

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {"processes": [p.dump_dict() for p in self.list_processes()]}

    def _load_dict(self, di: dict[str, Any]) -> None:
        self.add_processes(self._ProcessClass.load_dict(process) for process in di["processes"])


class ExperimentSpec(ProcessContainer):
    """Processes and groups, wired by services."""

    kind = "experiment"
    _ProcessGroupClass: ClassVar[type[ProcessGroupSpec]] = ProcessGroupSpec
    expose_type: ClassVar[str] = "PortForward"

    def __init__(self, name: str, port_range: Iterable[int] | None = None) -> None:
        super().__init__(name)
        self.port_range = None if port_range is None else list(port_range)
        self.lone_processes: dict[str, ProcessSpec] = {}
        self.process_groups: dict[str, ProcessGroupSpec] = {}
        self.base = calling_folder()
        """The script's folder: programs are relative to it, as they are to an experiment file."""

    def add_process(self, process: ProcessSpec) -> None:
        """Add a process to the experiment."""
        self._check_free(process.name)
        self.lone_processes[process.name] = process

    def get_process(self, name: str) -> Any:
        """The process of that name that is in no group."""
        return _get(self.lone_processes, name, f"process in the experiment {self.name!r}")

    def list_processes(self) -> list[Any]:
        """The processes that are in no group."""
        return list(self.lone_processes.values())

    def list_all_processes(self) -> list[Any]:
        """Every process, those of groups included."""
        return [
            p for group in self.list_process_groups() for p in group.list_processes()
        ] + self.list_processes()

    def add_process_group(self, process_group: ProcessGroupSpec) -> None:
        """Add a group to the experiment."""
        self._check_free(process_group.name)
        process_group.experiment = self
        self.process_groups[process_group.name] = process_group

    def add_process_groups(self, process_groups: Iterable[ProcessGroupSpec]) -> None:
        """Add groups to the experiment."""
        for group in process_groups:
            self.add_process_group(group)

    def new_process_group(self, *args: Any, **kwargs: Any) -> Any:
        """Create a group and add it to the experiment."""
        group = self._ProcessGroupClass(*args, **kwargs)
        self.add_process_group(group)
        return group

    def get_process_group(self, name: str) -> Any:
        """The group of that name."""
        return _get(self.process_groups, name, f"process group in the experiment {self.name!r}")

    def list_process_groups(self) -> list[Any]:
        """All groups."""
        return list(self.process_groups.values())

    def _check_free(self, name: str) -> None:
        if name in self.lone_processes or name in self.process_groups:
            raise UserError(
                f"experiment {self.name!r} already has a process or group {name!r}", fix="choose another name"
            )

    def to_callsheet(self) -> Experiment:
        """The same experiment for Callsheet: check it, print it with `to_yaml`, run it."""
        from callsheet.compat.symphony.translate import translate

        return translate(self)

    def compile(self) -> str:
        """The experiment file that a launch uses, as text."""
        return self.to_callsheet().validate().to_yaml()

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {
            "port_range": self.port_range,
            "process_groups": [group.dump_dict() for group in self.list_process_groups()],
            "processes": [process.dump_dict() for process in self.list_processes()],
        }

    def _load_dict(self, di: dict[str, Any]) -> None:
        self.port_range = di.get("port_range")
        self.add_process_groups(self._ProcessGroupClass.load_dict(group) for group in di["process_groups"])
        self.add_processes(self._ProcessClass.load_dict(process) for process in di["processes"])


def _get(among: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in among:
        raise UserError(
            f"there is no {what} called {name!r}", fix=f"choose one of: {', '.join(among) or 'none'}"
        )
    return among[name]
