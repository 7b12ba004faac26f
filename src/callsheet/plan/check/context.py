"""What all checks of an experiment share: the mistake that they report, and the experiment laid out to be checked."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from callsheet.spec.document import MentionedNames
from callsheet.spec.experiment import Container, Experiment, Role
from callsheet.spec.yaml_tree import Loc


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something wrong with an experiment whose shape is right."""

    loc: Loc
    """Keys and positions from the root, as in the file."""
    message: str
    fix: str
    at_key: bool = False
    """Whether the key itself is wrong rather than its value."""


@dataclass(frozen=True, slots=True)
class DocumentInfo:
    """What a file holds beyond the experiment that it could be parsed into, so that no mistake is reported twice."""

    names: MentionedNames = field(default_factory=MentionedNames)
    dropped: frozenset[Loc] = frozenset()
    """Where values were dropped because their shape is wrong."""

    def dropped_in(self, loc: Loc) -> bool:
        """Whether something here or inside was dropped."""
        return any(other[: len(loc)] == loc for other in self.dropped)


@dataclass(frozen=True, slots=True)
class PlacedContainer:
    """A container with its role and its location in the file."""

    loc: Loc
    """That of the role if its one container is given inline."""
    role: Role
    container: Container

    @property
    def bound(self) -> list[str]:
        """Endpoints that it listens on."""
        return [bind.name for bind in self.container.bound]

    @property
    def label(self) -> str:
        """What messages call it."""
        if not self.role.containers:
            return f"role {self.role.name!r}"
        return f"container {self.container.name!r} of role {self.role.name!r}"


@dataclass(frozen=True, slots=True)
class CheckContext:
    """An experiment laid out to be checked."""

    experiment: Experiment
    document: DocumentInfo
    roles: list[tuple[Loc, Role]]
    containers: list[PlacedContainer]
    endpoints: frozenset[str]
    """Every endpoint that a container binds, or was meant to bind."""


def check_context(experiment: Experiment, document: DocumentInfo) -> CheckContext:
    """Lay out an experiment for the checks."""
    roles: list[tuple[Loc, Role]] = [
        (("spec", "roles", index), role) for index, role in enumerate(experiment.spec.roles)
    ]
    containers = []
    for loc, role in roles:
        if role.containers:
            containers += [
                PlacedContainer((*loc, "containers", i), role, c) for i, c in enumerate(role.containers)
            ]
        else:
            containers.append(PlacedContainer(loc, role, role.group[0]))
    endpoints = frozenset(name for placed in containers for name in placed.bound) | document.names.endpoints
    return CheckContext(experiment, document, roles, containers, endpoints)


def listed(names: Collection[str]) -> str:
    """Names for a sentence."""
    return ", ".join(sorted(names)) or "none"


def repeated(names: list[str]) -> list[tuple[int, int, str]]:
    """Each later occurrence of a name: its position, the first position, the name."""
    first: dict[str, int] = {}
    return [(i, first[name], name) for i, name in enumerate(names) if first.setdefault(name, i) != i]
