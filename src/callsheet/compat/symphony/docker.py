"""Symphony's docker-compose cluster: processes run on this machine, without their images."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from callsheet.compat.symphony.base import no_counterpart
from callsheet.compat.symphony.engine import Cluster
from callsheet.compat.symphony.spec import ExperimentSpec, LocalProcessSpec, ProcessGroupSpec, ProcessSpec
from callsheet.errors import UserError

__all__ = ["DockerCluster", "DockerExperimentSpec", "DockerProcessGroupSpec", "DockerProcessSpec"]


class DockerProcessSpec(LocalProcessSpec):
    """A docker-compose service. Callsheet runs its command on this machine, without its image."""

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
        """Not supported: names are derived."""
        raise no_counterpart(
            f"set_hostname({hostname!r})",
            "a replica's host name is EXPERIMENT-ROLE-INDEX everywhere",
            "reach the process through binds and connects",
        )

    def set_port(self, port: int) -> None:
        """Not supported: ports belong to services."""
        raise no_counterpart(
            f"set_port({port!r})",
            "a port belongs to a named service",
            f"write process.binds({{'NAME': {port!r}}})",
        )

    def set_ports(self, ports: Iterable[int]) -> None:
        """Not supported: ports belong to services."""
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


class DockerCluster(Cluster):
    """Experiments on this machine."""

    _ExperimentClass: ClassVar[type[ExperimentSpec]] = DockerExperimentSpec
