"""Checks how roles are wired: endpoints, ports, the size of elastic roles, and what success means."""

from __future__ import annotations

from collections.abc import Iterator

from callsheet.errors import did_you_mean
from callsheet.plan.check.context import CheckContext, Mistake, PlacedContainer, listed, repeated
from callsheet.spec.experiment import ContainerFields, Role
from callsheet.spec.yaml_tree import Loc


def check_wiring(context: CheckContext) -> Iterator[Mistake]:
    """The graph of an experiment."""
    yield from _bound_once(context)
    for placed in context.containers:
        yield from _connects(context, placed)
    yield from _ports(context)
    for loc, role in context.roles:
        yield from _elastic(context, loc, role)
        yield from _inline(loc, role)
    yield from _success(context)


def _bound_once(context: CheckContext) -> Iterator[Mistake]:
    owners: dict[str, PlacedContainer] = {}
    for placed in context.containers:
        for loc, name, _ in _binds(placed):
            owner = owners.setdefault(name, placed)
            if owner is not placed or placed.bound.index(name) != _position(placed, loc):
                fix = f"rename one, or connect instead: connects: [{name}]"
                if owner is placed:
                    fix = "remove one of them"
                yield Mistake((*loc, "name"), f"the endpoint {name!r} is already bound by {owner.label}", fix)


def _binds(placed: PlacedContainer) -> Iterator[tuple[Loc, str, int | None]]:
    for key, binds in (("binds", placed.container.binds), ("exposes", placed.container.exposes)):
        for index, bind in enumerate(binds):
            yield (*placed.loc, key, index), bind.name, bind.port


def _position(placed: PlacedContainer, loc: Loc) -> int:
    """Which of the container's endpoints, counted over binds and then exposes, is at a location."""
    index = int(loc[-1])
    return index if loc[-2] == "binds" else len(placed.container.binds) + index


def _connects(context: CheckContext, placed: PlacedContainer) -> Iterator[Mistake]:
    yield from _named_twice((*placed.loc, "connects"), placed.container.connects)
    for index, name in enumerate(placed.container.connects):
        if name not in context.endpoints:
            otherwise = f"add binds: [{{name: {name}}}] to the role that listens (bound so far: {listed(context.endpoints)})"
            yield Mistake(
                (*placed.loc, "connects", index),
                f"no role binds the endpoint {name!r}",
                did_you_mean(name, context.endpoints, otherwise),
            )


def _named_twice(loc: Loc, names: list[str]) -> Iterator[Mistake]:
    for index, first, name in repeated(names):
        message = f"duplicate {name!r}, first used as number {first + 1} in {loc[-1]}"
        yield Mistake((*loc, index), message, "remove one of them")


def _ports(context: CheckContext) -> Iterator[Mistake]:
    """The containers of a group share one network."""
    taken: dict[tuple[Loc, int], str] = {}
    for placed in context.containers:
        for loc, name, port in _binds(placed):
            # A role's location is the start of each of its containers' locations.
            if port is not None and (first := taken.setdefault((placed.loc[:3], port), name)) != name:
                yield Mistake(
                    (*loc, "port"),
                    f"port {port} is already used by the endpoint {first!r} of the same replica",
                    "choose another port, or omit it to have one chosen",
                )


def _elastic(context: CheckContext, loc: Loc, role: Role) -> Iterator[Mistake]:
    scale = role.scale
    if scale is None or context.document.dropped_in((*loc, "replicas")):
        return
    if scale.min > scale.max:
        yield Mistake(
            (*loc, "scale"), f"min {scale.min} is greater than max {scale.max}", "swap or change them"
        )
    elif not scale.min <= role.replicas <= scale.max:
        given = "replicas" in role.model_fields_set
        yield Mistake(
            (*loc, "replicas") if given else (*loc, "scale"),
            f"replicas is {role.replicas}{'' if given else ' by default'}, outside scale ({scale.min} to {scale.max})",
            f"write replicas: {min(max(role.replicas, scale.min), scale.max)}, or change scale",
        )


def _inline(loc: Loc, role: Role) -> Iterator[Mistake]:
    if not role.containers:
        return
    for name, field in ContainerFields.model_fields.items():
        # A cluster fills in defaults.
        if getattr(role, name) == field.default:
            continue
        key = field.alias or name
        yield Mistake(
            (*loc, key),
            f"{key} cannot be set next to containers",
            f"move it into one of the containers: {', '.join(c.name for c in role.containers)}",
            at_key=True,
        )


def _success(context: CheckContext) -> Iterator[Mistake]:
    roles = {role.name: role for _, role in context.roles}
    known = roles.keys() | context.document.names.roles
    success = context.experiment.spec.lifecycle.success
    yield from _named_twice(("spec", "lifecycle", "success"), success)
    for index, name in enumerate(success):
        loc: Loc = ("spec", "lifecycle", "success", index)
        if name not in known:
            fix = did_you_mean(name, known, f"use one of: {listed(known)}")
            yield Mistake(loc, f"there is no role {name!r}", fix)
        elif name in roles and roles[name].restart.policy == "Always":
            yield Mistake(
                loc,
                f"the role {name!r} never ends: its restart policy is Always",
                f"set restart: {{policy: OnFailure}} for {name}, or remove it from success",
            )
