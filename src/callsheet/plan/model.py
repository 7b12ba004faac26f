"""The plan: an experiment resolved into every replica's command, environment and addresses, as plain data.

What all replicas of a container share is stored once, in `ContainerPlan`; `Replica` holds only what differs. So a plan of
10,000 replicas stays small in memory and on disk. Secrets are references here, so that a plan can be printed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import msgspec

Policy = Literal["Always", "OnFailure", "Never"]


@dataclass(frozen=True, slots=True)
class EnvRef:
    """A variable whose value is looked up when the container starts, and where."""

    variable: str
    """Name of the variable; with an empty `key`, a prefix for every key of the source."""
    source: Literal["secret", "configmap", "field", "resource"]
    """The last two are the pod's own; only templates refer to them."""
    name: str = ""
    """Of the Secret or ConfigMap, or of the container whose resource it is."""
    key: str = ""
    """Key in it; path of the field; the resource."""
    optional: bool = False
    divisor: str = ""


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """A readiness probe with its ports resolved."""

    kind: Literal["exec", "http", "tcp"]
    command: tuple[str, ...] = ()
    port: int = 0
    """As in the file; a backend whose replicas share a host translates it."""
    host: str = ""
    path: str = "/"
    scheme: str = "HTTP"
    initial_delay: int = 0
    period: int = 10
    timeout: int = 1
    successes: int = 1
    failures: int = 3


@dataclass(frozen=True, slots=True)
class ContainerPlan:
    """What every replica of a role gives to one of its containers."""

    name: str
    env: dict[str, str]
    """Variables that are equal in all replicas."""
    env_refs: tuple[EnvRef, ...] = ()
    """Looked up at the start, in this order; `env` and the replica's own win over those with an empty key."""
    ports: dict[str, int] = field(default_factory=dict)
    """Port by endpoint for all that it binds or exposes."""
    exposed: tuple[str, ...] = ()
    """Which of them are for people outside."""
    probe: ProbePlan | None = None
    gpus: int = 0
    balanced: tuple[str, ...] = ()
    """Endpoints whose `_ADDR` means any of the replicas behind them: a template cannot say "the one with my index,
    modulo their number"."""


@dataclass(frozen=True, slots=True)
class ContainerTemplate:
    """One container of all replicas of a role, for a backend that makes them from one template.

    It does not change when roles are scaled: what scaling changes is a reference."""

    command: tuple[str, ...]
    env: dict[str, str | EnvRef]
    """Each variable's value, or where it comes from; every variable comes after those it refers to."""


@dataclass(frozen=True, slots=True)
class ReplicaContainer:
    """What is one replica's own in one container."""

    command: tuple[str, ...]
    env: dict[str, str]
    ports: dict[str, int] = field(default_factory=dict)
    """Only where they differ from the container's: replicas that share one host."""
    mounts: dict[str, str] = field(default_factory=dict)
    """Path under which the container sees each volume."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One member of a role."""

    index: int
    host: str
    """Where its peers reach it."""
    containers: tuple[ReplicaContainer, ...]
    """In the order of the role's containers."""


@dataclass(frozen=True, slots=True)
class RolePlan:
    """A role with all its replicas."""

    name: str
    policy: Policy
    limit: int
    """Restarts after failures that one replica may use."""
    grace: float
    """Seconds between SIGTERM and SIGKILL."""
    containers: tuple[ContainerPlan, ...]
    """The main one first."""
    replicas: tuple[Replica, ...]
    elastic: tuple[int, int] | None = None
    template: tuple[ContainerTemplate, ...] = ()
    """In the order of `containers`; empty where the backend makes each replica individually."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole run."""

    experiment: str
    run: str
    workdir: str
    storage: str
    """URL of the run's results; empty when there is none."""
    roles: tuple[RolePlan, ...]
    success: tuple[str, ...]
    """The roles that the file names; what none means is a rule of `lifecycle`."""
    max_restarts: int | None
    deadline: float | None
    """Seconds."""
    address_book: dict[str, Any]
    """The address book: what the file behind CALLSHEET_ADDRESSES holds."""
    files: dict[str, str]

    def role(self, name: str) -> RolePlan:
        """The role of that name."""
        return next(role for role in self.roles if role.name == name)

    def environment(self, role: RolePlan, replica: Replica, container: int) -> dict[str, str]:
        """All variables of one container of one replica, without those behind references."""
        return role.containers[container].env | replica.containers[container].env

    def to_data(self) -> dict[str, Any]:
        """As JSON-compatible data."""
        return asdict(self)


def plan_from_data(data: dict[str, Any]) -> Plan:
    """The inverse of `Plan.to_data`."""
    return msgspec.convert(data, Plan)


def without_member(address_book: dict[str, Any], role: str, index: int) -> dict[str, Any]:
    """The address book after one member has left."""
    members = address_book["roles"][role]
    if index not in members["indexes"]:
        return address_book
    place = members["indexes"].index(index)

    def without(items: list[Any]) -> list[Any]:
        return items[:place] + items[place + 1 :]

    left = {"replicas": members["replicas"] - 1} | {
        key: without(members[key]) for key in ("indexes", "hosts")
    }
    roles = address_book["roles"] | {role: left}
    endpoints = {
        name: e | {"addresses": without(e["addresses"])} if e["role"] == role else e
        for name, e in address_book["endpoints"].items()
    }
    return address_book | {"roles": roles, "endpoints": endpoints}
