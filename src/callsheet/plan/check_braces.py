"""Checks what stands in braces in `command`, `args` and `env`: it must resolve in the very container that uses it."""

from __future__ import annotations

from collections.abc import Iterator

from callsheet import contract
from callsheet.errors import nearest
from callsheet.plan import template
from callsheet.plan.check_base import Mistake, Site, Subject
from callsheet.plan.template import Hole
from callsheet.spec.kubernetes import EnvVar
from callsheet.spec.tree import Loc


def check_braces(it: Subject) -> Iterator[Mistake]:
    """Every text that is filled in."""
    for site in it.sites:
        texts = [
            *(((*site.loc, "command", i), text) for i, text in enumerate(site.container.command)),
            *(((*site.loc, "args", i), text) for i, text in enumerate(site.container.args)),
            *_values((*site.loc, "env"), site.container.env),
        ]
        for loc, text in texts:
            yield from _text(it, loc, text, [site])
    for loc, text in _values(("spec", "env"), it.experiment.spec.env):
        name = it.experiment.spec.env[int(loc[2])].name
        users = [site for site in it.sites if all(own.name != name for own in site.container.env)]
        yield from _text(it, loc, text, users)


def _values(loc: Loc, variables: list[EnvVar]) -> Iterator[tuple[Loc, str]]:
    for index, variable in enumerate(variables):
        if variable.value is not None:
            yield (*loc, index, "value"), variable.value


def _text(it: Subject, loc: Loc, text: str, users: list[Site]) -> Iterator[Mistake]:
    """`users`: the containers that are given this text."""
    if "\0" in text:
        yield Mistake(loc, "a NUL character cannot be given to a program", "remove it")
    for hole in dict.fromkeys(template.holes(template.parse(text, it.endpoints))):
        files = it.experiment.spec.files.keys() | it.known.names.files
        mounts = {hole.tail} if hole.head == contract.MOUNTS else set()
        message, fix = template.mistake(hole, it.endpoints, files, mounts)
        if message:
            yield Mistake(loc, message, fix)
            continue
        for site in users:
            message, fix = _in_container(it, site, hole)
            if message:
                if loc[:2] == ("spec", "env"):
                    fix = f"move the variable to the containers that it is for; or {fix}"
                yield Mistake(loc, message, fix)
                break


def _in_container(it: Subject, site: Site, hole: Hole) -> tuple[str, str]:
    """What is wrong with a hole, itself well written, in this container."""
    if not hole.tail or hole.head == contract.FILES:
        return "", ""
    if hole.head == contract.MOUNTS:
        mounts = {mount.name for mount in site.container.volume_mounts}
        if it.known.lacks((*site.loc, "volumeMounts")):
            return "", ""
        return template.mistake(hole, it.endpoints, (), mounts)
    if any(it.known.lacks((*site.loc, key)) for key in ("binds", "connects", "exposes")):
        return "", ""
    bound = hole.head in site.bound
    if hole.tail == "bind" and not bound:
        return (
            f"{hole} is where to listen, but {site.shown} does not bind {hole.head!r}",
            f"write {{{hole.head}.addr}} to connect to it",
        )
    if not bound and hole.head not in site.container.connects and not _misspelled(it, site, hole.head):
        return (
            f"{site.shown} uses {hole} but neither binds nor connects to {hole.head!r}",
            f"add {hole.head} to its connects",
        )
    return "", ""


def _misspelled(it: Subject, site: Site, endpoint: str) -> bool:
    """Whether a connect that leads nowhere, which is reported there, was probably meant for this endpoint."""
    astray = [name for name in site.container.connects if name not in it.endpoints]
    return any(nearest(name, it.endpoints) == endpoint for name in astray)
