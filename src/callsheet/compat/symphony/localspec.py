"""Symphony's specs for one machine: tmux windows, subprocesses, docker-compose services.

Callsheet runs all three as supervised processes. As in Symphony, tmux and subproc start nothing again.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from callsheet.compat.symphony.base import no_counterpart
from callsheet.compat.symphony.spec import ExperimentSpec, ProcessGroupSpec, ProcessSpec
from callsheet.errors import UserError


class LocalProcessSpec(ProcessSpec):
    """A process of this machine."""

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

    def command(self) -> list[str]:
        """Program and arguments."""
        raise NotImplementedError

    def container_fields(self) -> dict[str, Any]:
        env = [{"name": name, "value": value} for name, value in self.env.items()]
        return {"command": self.command()} | ({"env": env} if env else {})

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {"env": dict(self.env)}

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.set_envs(di["env"])


class TmuxProcessSpec(LocalProcessSpec):
    """Lines of shell, one after the other."""

    restart: ClassVar[str | None] = "Never"

    def __init__(
        self, name: str, cmds: str | Sequence[str] | None = None, start_dir: str | None = None
    ) -> None:
        super().__init__(name)
        self.cmds = _lines(cmds)
        self.start_dir = start_dir
        self.preamble_cmds: list[str] = []

    def command(self) -> list[str]:
        folder = [f"cd {shlex.quote(os.path.expanduser(self.start_dir))} || exit"] if self.start_dir else []
        return ["bash", "-c", "\n".join([*folder, *self.preamble_cmds, *self.cmds])]

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {"cmds": list(self.cmds), "start_dir": self.start_dir}

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.cmds, self.start_dir = list(di["cmds"]), di["start_dir"]


class TmuxProcessGroupSpec(ProcessGroupSpec):
    """A group of them."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = TmuxProcessSpec


class TmuxExperimentSpec(ExperimentSpec):
    """An experiment of tmux windows."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = TmuxProcessSpec
    _ProcessGroupClass: ClassVar[type[ProcessGroupSpec]] = TmuxProcessGroupSpec

    def __init__(
        self,
        name: str,
        start_dir: str | None = None,
        preamble_cmds: str | Sequence[str] | None = None,
        port_range: Iterable[int] | None = None,
    ) -> None:
        super().__init__(name, port_range)
        self.start_dir = os.path.abspath(os.path.expanduser(start_dir)) if start_dir else None
        self.set_preamble_cmds(preamble_cmds)

    def set_preamble_cmds(self, preamble_cmds: str | Sequence[str] | None) -> None:
        """Lines of shell that every process runs first."""
        self.preamble_cmds = _lines(preamble_cmds)

    def to_callsheet(self) -> Any:
        for process in self.list_all_processes():
            process.preamble_cmds = list(self.preamble_cmds)
        return super().to_callsheet()

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {"start_dir": self.start_dir, "preamble_cmds": list(self.preamble_cmds)}

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.start_dir = di["start_dir"]
        self.set_preamble_cmds(di["preamble_cmds"])


class SubprocProcessSpec(LocalProcessSpec):
    """One command: a line that is split as a shell splits it, or a list."""

    restart: ClassVar[str | None] = "Never"

    def __init__(self, name: str, cmd: str | Sequence[str] = ()) -> None:
        super().__init__(name)
        self.cmd = cmd if isinstance(cmd, str) else [str(word) for word in cmd]

    def command(self) -> list[str]:
        words = shlex.split(self.cmd) if isinstance(self.cmd, str) else list(self.cmd)
        if not words:
            raise UserError(f"process {self.name!r} has no command", fix="give cmd='python program.py'")
        return words

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {"cmd": self.cmd}

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.cmd = di["cmd"]


class SubprocProcessGroupSpec(ProcessGroupSpec):
    """A group of them."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = SubprocProcessSpec


class SubprocExperimentSpec(ExperimentSpec):
    """An experiment of subprocesses."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = SubprocProcessSpec
    _ProcessGroupClass: ClassVar[type[ProcessGroupSpec]] = SubprocProcessGroupSpec


class DockerProcessSpec(LocalProcessSpec):
    """A service of docker-compose. Callsheet runs its command on this machine and starts no image."""

    def __init__(
        self,
        name: str,
        container_image: str | None = None,
        command: str | Sequence[str] | None = None,
        args: Sequence[Any] = (),
    ) -> None:
        super().__init__(name)
        self.container_image = container_image
        self.words = [command] if isinstance(command, str) else [str(word) for word in command or ()]
        self.args = [str(word) for word in args]

    def command(self) -> list[str]:
        if not self.words:
            raise UserError(
                f"process {self.name!r} has only an image, {self.container_image!r}, and Callsheet runs the processes "
                "of a docker experiment on this machine without it",
                fix="give the program that the image starts: new_process(..., command=['python', 'program.py'])",
            )
        return [*self.words, *self.args]

    def container_fields(self) -> dict[str, Any]:
        image = {"image": self.container_image} if self.container_image else {}
        return super().container_fields() | image

    def set_hostname(self, hostname: str) -> None:
        """Refused: names are derived."""
        raise no_counterpart(
            f"set_hostname({hostname!r})",
            "a replica's host name is EXPERIMENT-ROLE-INDEX everywhere",
            "reach the process through binds and connects",
        )

    def set_port(self, port: int) -> None:
        """Refused: ports belong to services."""
        raise no_counterpart(
            f"set_port({port!r})",
            "a port belongs to a named service",
            f"write process.binds({{'NAME': {port!r}}})",
        )

    def set_ports(self, ports: Iterable[int]) -> None:
        """Refused: ports belong to services."""
        for port in ports:
            self.set_port(port)

    def dump_dict(self) -> dict[str, Any]:
        return super().dump_dict() | {
            "container_image": self.container_image,
            "command": list(self.words),
            "args": list(self.args),
        }

    def _load_dict(self, di: dict[str, Any]) -> None:
        super()._load_dict(di)
        self.container_image, self.words, self.args = (
            di["container_image"],
            list(di["command"]),
            list(di["args"]),
        )


class DockerProcessGroupSpec(ProcessGroupSpec):
    """A group of them."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = DockerProcessSpec


class DockerExperimentSpec(ExperimentSpec):
    """An experiment of docker-compose services."""

    _ProcessClass: ClassVar[type[ProcessSpec]] = DockerProcessSpec
    _ProcessGroupClass: ClassVar[type[ProcessGroupSpec]] = DockerProcessGroupSpec


def _lines(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else [str(line) for line in given or ()]
