"""Checks names: their form, the length of what is derived from them, and that they are unique."""

from __future__ import annotations

import re
from collections.abc import Iterator

from callsheet import contract
from callsheet.plan.check.context import CheckContext, Mistake, repeated
from callsheet.spec.experiment import LABEL_PATTERN, LABEL_RULE, LONGEST_LABEL, LONGEST_ROLE_OBJECT
from callsheet.spec.yaml_tree import Loc

_LABEL = re.compile(LABEL_PATTERN)
_NAMED = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def check_names(context: CheckContext) -> Iterator[Mistake]:
    """All names of an experiment."""
    yield from _labels(context)
    yield from _lengths(context)
    yield from _unique(context)
    metadata = context.experiment.metadata
    yield from _tags(("metadata", "labels"), metadata.labels, values=True)
    yield from _tags(("metadata", "annotations"), metadata.annotations, values=False)
    for loc, role in context.roles:
        yield from _tags((*loc, "labels"), role.labels, values=True)
        yield from _tags((*loc, "nodeSelector"), role.node_selector, values=True)
        yield from _tags((*loc, "annotations"), role.annotations, values=False)


def is_label(name: str) -> bool:
    """Whether this is a DNS label (RFC 1035)."""
    return len(name) <= LONGEST_LABEL and _LABEL.fullmatch(name) is not None


def is_object_name(name: str) -> bool:
    """Whether this is a valid name of a Secret, a ConfigMap or a claim."""
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


def _places(context: CheckContext) -> Iterator[tuple[Loc, str]]:
    """Everything that must be a label."""
    yield ("metadata", "name"), context.experiment.name
    for loc, role in context.roles:
        yield (*loc, "name"), role.name
    for placed in context.containers:
        if placed.role.containers:
            yield (*placed.loc, "name"), placed.container.name
    yield from _endpoints(context)
    for index, volume in enumerate(context.experiment.spec.volumes):
        yield ("spec", "volumes", index, "name"), volume.name


def _endpoints(context: CheckContext) -> Iterator[tuple[Loc, str]]:
    for placed in context.containers:
        for key, binds in (("binds", placed.container.binds), ("exposes", placed.container.exposes)):
            for index, bind in enumerate(binds):
                yield (*placed.loc, key, index, "name"), bind.name


def _labels(context: CheckContext) -> Iterator[Mistake]:
    for loc, name in _places(context):
        if len(name) > LONGEST_LABEL:
            yield Mistake(
                loc, f"the name {name!r} has {len(name)} characters", f"use at most {LONGEST_LABEL}"
            )
        elif not is_label(name):
            better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
            fix = f"write {better}" if is_label(better) else f"write {LABEL_RULE}"
            yield Mistake(loc, f"{name!r} is not a DNS label ({LABEL_RULE})", fix)
    for loc, name in _endpoints(context):
        if name in contract.RESERVED_ENDPOINTS:
            yield Mistake(
                loc,
                f"the endpoint name {name!r} is reserved: {{{name}.x}} has another meaning",
                "choose another name",
            )


def _lengths(context: CheckContext) -> Iterator[Mistake]:
    """Derived names must fit too. Names that are wrong themselves have been reported."""
    experiment = context.experiment.name
    if not is_label(experiment):
        return
    room = LONGEST_ROLE_OBJECT - len(experiment) - 1
    if room < 1:
        yield Mistake(
            ("metadata", "name"),
            f"the name {experiment!r} has {len(experiment)} characters and leaves no room for the roles' names",
            f"shorten it: <experiment>-<role> may have at most {LONGEST_ROLE_OBJECT} characters",
        )
        return
    for loc, role in context.roles:
        if is_label(role.name) and len(role.name) > room:
            yield _too_long((*loc, "name"), f"{experiment}-{role.name}", LONGEST_ROLE_OBJECT)
    for loc, name in _endpoints(context):
        if is_label(name) and len(experiment) + 1 + len(name) > LONGEST_LABEL:
            yield _too_long(loc, f"{experiment}-{name}", LONGEST_LABEL)


def _too_long(loc: Loc, derived: str, limit: int) -> Mistake:
    return Mistake(
        loc,
        f"the derived name {derived!r} has {len(derived)} characters; Kubernetes allows {limit}",
        f"shorten this name or the experiment's by {len(derived) - limit}",
    )


def _unique(context: CheckContext) -> Iterator[Mistake]:
    yield from _twice("role", ("spec", "roles"), [role.name for _, role in context.roles])
    yield from _twice("volume", ("spec", "volumes"), [v.name for v in context.experiment.spec.volumes])
    yield from _twice("variable", ("spec", "env"), [v.name for v in context.experiment.spec.env])
    for loc, role in context.roles:
        yield from _twice("container", (*loc, "containers"), [c.name for c in role.containers])
    for placed in context.containers:
        yield from _twice("variable", (*placed.loc, "env"), [v.name for v in placed.container.env])


def _twice(what: str, loc: Loc, names: list[str]) -> Iterator[Mistake]:
    for index, first, name in repeated(names):
        yield Mistake(
            (*loc, index, "name"),
            f"duplicate {what} {name!r}, first used as number {first + 1} in {loc[-1]}",
            "rename or remove one of them",
        )


def _tags(loc: Loc, tags: dict[str, str], *, values: bool) -> Iterator[Mistake]:
    """Keys, and for labels the values, must be valid in Kubernetes."""
    rule = "at most 63 letters, digits, '-', '_' and '.', with a letter or digit first and last"
    for key, value in tags.items():
        prefix, slash, name = key.rpartition("/")
        right = len(name) <= LONGEST_LABEL and _NAMED.fullmatch(name)
        if not right or (slash and not is_object_name(prefix)):
            yield Mistake(
                (*loc, key),
                f"{key!r} is not a valid Kubernetes key",
                f"use {rule}; a DNS name and '/' may come before it",
                at_key=True,
            )
        if values and value and (len(value) > LONGEST_LABEL or not _NAMED.fullmatch(value)):
            yield Mistake((*loc, key), f"{value!r} is not a valid label value", f"use {rule}")
