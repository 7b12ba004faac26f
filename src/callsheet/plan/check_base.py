"""What the checks of an experiment share: a mistake, what is known besides the experiment, and the way through it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from callsheet.spec.document import Names
from callsheet.spec.experiment import Container, Experiment, Role
from callsheet.spec.tree import Loc


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
class Known:
    """What a document says beyond the experiment that could be made of it, so that no mistake is told twice."""

    names: Names = field(default_factory=Names)
    dropped: frozenset[Loc] = frozenset()
    """Where pieces were taken out because their shape is wrong."""

    def lacks(self, loc: Loc) -> bool:
        """Whether something at this place or inside it was taken out."""
        return any(other[: len(loc)] == loc for other in self.dropped)


@dataclass(frozen=True, slots=True)
class Site:
    """One container and where it stands."""

    loc: Loc
    """The role's own when the role has one container, given inline."""
    role: Role
    container: Container

    @property
    def bound(self) -> list[str]:
        """Names of the endpoints that it listens on."""
        return [bind.name for bind in (*self.container.binds, *self.container.exposes)]

    @property
    def shown(self) -> str:
        """How people call it."""
        if not self.role.containers:
            return f"role {self.role.name!r}"
        return f"container {self.container.name!r} of role {self.role.name!r}"


@dataclass(frozen=True, slots=True)
class Subject:
    """An experiment under examination."""

    experiment: Experiment
    known: Known
    roles: list[tuple[Loc, Role]]
    sites: list[Site]
    endpoints: frozenset[str]
    """Every endpoint that some container binds, or was meant to."""


def subject(experiment: Experiment, known: Known) -> Subject:
    """Lay out an experiment for the checks."""
    roles: list[tuple[Loc, Role]] = [
        (("spec", "roles", index), role) for index, role in enumerate(experiment.spec.roles)
    ]
    sites = []
    for loc, role in roles:
        if role.containers:
            sites += [Site((*loc, "containers", i), role, c) for i, c in enumerate(role.containers)]
        else:
            sites.append(Site(loc, role, role.group[0]))
    endpoints = frozenset(name for site in sites for name in site.bound) | known.names.endpoints
    return Subject(experiment, known, roles, sites, endpoints)


def listed(names: Collection[str]) -> str:
    """Names for a sentence."""
    return ", ".join(sorted(names)) or "none"


def repeated(names: list[str]) -> list[tuple[int, int, str]]:
    """Each later occurrence of a name: its position, the first position, the name."""
    first: dict[str, int] = {}
    return [(i, first[name], name) for i, name in enumerate(names) if first.setdefault(name, i) != i]
