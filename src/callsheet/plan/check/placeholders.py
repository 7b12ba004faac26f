"""Checks placeholders in `command`, `args` and `env`: each must resolve in the container that uses it."""

from __future__ import annotations

from collections.abc import Iterator

from callsheet import contract
from callsheet.errors import nearest
from callsheet.plan import template
from callsheet.plan.check.context import CheckContext, Mistake, PlacedContainer
from callsheet.plan.template import Placeholder
from callsheet.spec.kubernetes import EnvVar
from callsheet.spec.yaml_tree import Loc


def check_placeholders(context: CheckContext) -> Iterator[Mistake]:
    """Every text that is filled in."""
    for placed in context.containers:
        texts = [
            *(((*placed.loc, "command", i), text) for i, text in enumerate(placed.container.command)),
            *(((*placed.loc, "args", i), text) for i, text in enumerate(placed.container.args)),
            *_values((*placed.loc, "env"), placed.container.env),
        ]
        for loc, text in texts:
            yield from _text(context, loc, text, [placed])
    for loc, text in _values(("spec", "env"), context.experiment.spec.env):
        name = context.experiment.spec.env[int(loc[2])].name
        users = [
            placed for placed in context.containers if all(own.name != name for own in placed.container.env)
        ]
        yield from _text(context, loc, text, users)


def _values(loc: Loc, variables: list[EnvVar]) -> Iterator[tuple[Loc, str]]:
    for index, variable in enumerate(variables):
        if variable.value is not None:
            yield (*loc, index, "value"), variable.value


def _text(context: CheckContext, loc: Loc, text: str, users: list[PlacedContainer]) -> Iterator[Mistake]:
    """`users`: the containers that get this text."""
    if "\0" in text:
        yield Mistake(loc, "a program's arguments and variables cannot contain a NUL character", "remove it")
    for placeholder in dict.fromkeys(template.placeholders(template.parse(text, context.endpoints))):
        files = context.experiment.spec.files.keys() | context.document.names.files
        mounts = {placeholder.tail} if placeholder.head == contract.MOUNTS else set()
        message, fix = template.mistake(placeholder, context.endpoints, files, mounts)
        if message:
            yield Mistake(loc, message, fix)
            continue
        for placed in users:
            message, fix = _in_container(context, placed, placeholder)
            if message:
                if loc[:2] == ("spec", "env"):
                    fix = f"move the variable to the containers that need it, or {fix}"
                yield Mistake(loc, message, fix)
                break


def _in_container(
    context: CheckContext, placed: PlacedContainer, placeholder: Placeholder
) -> tuple[str, str]:
    """What is wrong with a valid placeholder in this container."""
    if not placeholder.tail or placeholder.head == contract.FILES:
        return "", ""
    if placeholder.head == contract.MOUNTS:
        mounts = {mount.name for mount in placed.container.volume_mounts}
        if context.document.dropped_in((*placed.loc, "volumeMounts")):
            return "", ""
        return template.mistake(placeholder, context.endpoints, (), mounts)
    if any(context.document.dropped_in((*placed.loc, key)) for key in ("binds", "connects", "exposes")):
        return "", ""
    bound = placeholder.head in placed.bound
    if placeholder.tail == "bind" and not bound:
        return (
            f"{placeholder} is the address to listen on, but {placed.label} does not bind {placeholder.head!r}",
            f"use {{{placeholder.head}.addr}} to connect to it",
        )
    if (
        not bound
        and placeholder.head not in placed.container.connects
        and not _misspelled(context, placed, placeholder.head)
    ):
        return (
            f"{placed.label} uses {placeholder} but neither binds nor connects to {placeholder.head!r}",
            f"add {placeholder.head} to its connects",
        )
    return "", ""


def _misspelled(context: CheckContext, placed: PlacedContainer, endpoint: str) -> bool:
    """Whether an unknown `connects`, which is reported there, was probably meant for this endpoint."""
    unknown = [name for name in placed.container.connects if name not in context.endpoints]
    return any(nearest(name, context.endpoints) == endpoint for name in unknown)
