"""What a backend tells the planner: where replicas are reached, and where files, volumes and results lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from callsheet.plan.model import EnvRef
from callsheet.spec.experiment import Role
from callsheet.spec.kubernetes import Volume, VolumeMount


class Addressing(Protocol):
    """A backend's addresses and paths. Every answer depends on the arguments alone, so that a plan is pure."""

    @property
    def workdir(self) -> str:
        """The working directory of every process."""

    @property
    def storage(self) -> str:
        """URL of the run's results; empty when there is none."""

    @property
    def addresses(self) -> str:
        """Path of the address file, as the processes see it."""

    @property
    def keys(self) -> str:
        """Folder of the run's keys, as the processes see it."""

    @property
    def env(self) -> Mapping[str, str]:
        """Variables that the backend adds to the contract's; yours win."""

    @property
    def template(self) -> TemplateSyntax | None:
        """How replicas are made from one template for each role; None where each is made individually."""

    @property
    def avoid(self) -> frozenset[int]:
        """Ports that must not be chosen for an endpoint that names none."""

    @property
    def capacity(self) -> Mapping[str, int]:
        """What a container without a limit may use: `cpu` in cores, `memory` in bytes."""

    def host(self, role: str, index: int) -> str:
        """Where peers reach a replica."""

    def listen(self, role: str, index: int) -> str:
        """The host that a replica listens on."""

    def port(self, endpoint: str, port: int, index: int) -> int:
        """The port on which one replica serves an endpoint whose port in the file is `port`."""

    def any(self, endpoint: str, port: int) -> str:
        """One address for all replicas behind an endpoint; empty if there is none."""

    def file(self, name: str) -> str:
        """Path of an injected file, as the processes see it."""

    def mount(self, volume: Volume, mount: VolumeMount, role: str, index: int) -> str:
        """Path under which a container sees a volume."""

    def field(self, path: str, experiment: str, role: Role, index: int) -> str:
        """A field of the replica's pod, or its equivalent."""


class TemplateSyntax(Protocol):
    """How a template speaks of what differs between the replicas made from it, or changes when roles are scaled."""

    def source(self, variable: str, role: Role) -> EnvRef | None:
        """Where replicas find one of the contract's variables; None if the template holds its value."""

    def host(self, role: str) -> str:
        """Where peers reach the replica of a role that has their own index."""

    def reference(self, variable: str) -> str:
        """The value of another variable of the same container, inside a text."""

    def literal(self, text: str) -> str:
        """A user's text, kept from being expanded."""
