"""Checks how roles hang together: endpoints, ports, the size of elastic roles, and what success means."""

from __future__ import annotations

from collections.abc import Iterator

from callsheet.errors import did_you_mean
from callsheet.plan.check_base import Mistake, Site, Subject, listed, repeated
from callsheet.spec.experiment import ContainerFields, Role
from callsheet.spec.tree import Loc


def check_wiring(it: Subject) -> Iterator[Mistake]:
    """The graph of an experiment."""
    yield from _bound_once(it)
    for site in it.sites:
        yield from _connects(it, site)
    yield from _ports(it)
    for loc, role in it.roles:
        yield from _elastic(it, loc, role)
        yield from _inline(loc, role)
    yield from _success(it)


def _bound_once(it: Subject) -> Iterator[Mistake]:
    owners: dict[str, Site] = {}
    for site in it.sites:
        for loc, name, _ in _binds(site):
            owner = owners.setdefault(name, site)
            if owner is not site or site.bound.index(name) != _position(site, loc):
                fix = f"rename one, or let this one connect: connects: [{name}]"
                if owner is site:
                    fix = "remove one of the two"
                yield Mistake((*loc, "name"), f"the endpoint {name!r} is bound by {owner.shown} already", fix)


def _binds(site: Site) -> Iterator[tuple[Loc, str, int | None]]:
    for key, binds in (("binds", site.container.binds), ("exposes", site.container.exposes)):
        for index, bind in enumerate(binds):
            yield (*site.loc, key, index), bind.name, bind.port


def _position(site: Site, loc: Loc) -> int:
    """Which of the container's endpoints, counted over binds and then exposes, stands at a loc."""
    index = int(loc[-1])
    return index if loc[-2] == "binds" else len(site.container.binds) + index


def _connects(it: Subject, site: Site) -> Iterator[Mistake]:
    yield from _named_twice((*site.loc, "connects"), site.container.connects)
    for index, name in enumerate(site.container.connects):
        if name not in it.endpoints:
            otherwise = f"add binds: [{{name: {name}}}] to the role that listens (bound so far: {listed(it.endpoints)})"
            yield Mistake(
                (*site.loc, "connects", index),
                f"no role binds the endpoint {name!r}",
                did_you_mean(name, it.endpoints, otherwise),
            )


def _named_twice(loc: Loc, names: list[str]) -> Iterator[Mistake]:
    for index, first, name in repeated(names):
        message = f"{name!r} is there already, as number {first + 1} of {loc[-1]}"
        yield Mistake((*loc, index), message, "remove one of the two")


def _ports(it: Subject) -> Iterator[Mistake]:
    """The containers of a group share one network."""
    taken: dict[tuple[Loc, int], str] = {}
    for site in it.sites:
        for loc, name, port in _binds(site):
            # A role's place is the beginning of each of its containers' places.
            if port is not None and (first := taken.setdefault((site.loc[:3], port), name)) != name:
                yield Mistake(
                    (*loc, "port"),
                    f"port {port} is taken by the endpoint {first!r} of the same replica",
                    "choose another port, or leave it out and one is chosen",
                )


def _elastic(it: Subject, loc: Loc, role: Role) -> Iterator[Mistake]:
    scale = role.scale
    if scale is None or it.known.lacks((*loc, "replicas")):
        return
    if scale.min > scale.max:
        yield Mistake(
            (*loc, "scale"), f"min {scale.min} is greater than max {scale.max}", "swap or change them"
        )
    elif not scale.min <= role.replicas <= scale.max:
        given = "replicas" in role.model_fields_set
        yield Mistake(
            (*loc, "replicas") if given else (*loc, "scale"),
            f"replicas is {role.replicas}{'' if given else ' when absent'}, outside of scale, {scale.min} to {scale.max}",
            f"write replicas: {min(max(role.replicas, scale.min), scale.max)}, or change scale",
        )


def _inline(loc: Loc, role: Role) -> Iterator[Mistake]:
    if not role.containers:
        return
    for name, field in ContainerFields.model_fields.items():
        # A cluster fills in defaults; they say nothing.
        if getattr(role, name) == field.default:
            continue
        key = field.alias or name
        yield Mistake(
            (*loc, key),
            f"{key} stands beside containers, and belongs to one of them",
            f"move it into the container that it is for: {', '.join(c.name for c in role.containers)}",
            at_key=True,
        )


def _success(it: Subject) -> Iterator[Mistake]:
    roles = {role.name: role for _, role in it.roles}
    known = roles.keys() | it.known.names.roles
    success = it.experiment.spec.lifecycle.success
    yield from _named_twice(("spec", "lifecycle", "success"), success)
    for index, name in enumerate(success):
        loc: Loc = ("spec", "lifecycle", "success", index)
        if name not in known:
            fix = did_you_mean(name, known, f"write one of the roles: {listed(known)}")
            yield Mistake(loc, f"there is no role {name!r}", fix)
        elif name in roles and roles[name].restart.policy == "Always":
            yield Mistake(
                loc,
                f"the role {name!r} never ends: its restart policy is Always",
                f"give {name} restart: {{policy: OnFailure}}, or take it out of success",
            )
