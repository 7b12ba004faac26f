"""Shell completion of runs, roles, replicas and containers. It must be fast, and silent on errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from callsheet.backends import base
from callsheet.cli import selection
from callsheet.cli.results import stored_spec
from callsheet.errors import CallsheetError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_TAKES_FINISHED = ("status", "logs", "metrics", "attach", "plot", "evaluate")
"""Verbs that take finished runs too; the others take active ones."""


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of runs that the verb accepts, then the names of their experiments."""
    from click.shell_completion import CompletionItem

    taken = ctx.params.get(param.name or "") or ()
    try:
        known = _backend(ctx).runs()
    except CallsheetError:
        return []
    fits = [status for status in known if status.run not in taken and _takes(ctx.info_name, status)]
    items = [(status.run, f"{status.experiment}, {status.phase}") for status in fits]
    items += [(name, "experiment") for name in dict.fromkeys(status.experiment for status in fits)]
    return [CompletionItem(word, help=text) for word, text in items if word.startswith(incomplete)]


def _takes(verb: str | None, status: base.Status) -> bool:
    if verb == "delete":
        return status.done
    return verb in _TAKES_FINISHED or not status.done


def targets(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the run's roles and replicas."""
    status = _status(ctx)
    if status is None:
        return []
    return _matching(incomplete, [*_roles(status), *(replica.name for replica in status.replicas)])


def replicas(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the run's replicas."""
    status = _status(ctx)
    return _matching(incomplete, [replica.name for replica in status.replicas]) if status else []


def roles(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the run's roles."""
    status = _status(ctx)
    return _matching(incomplete, _roles(status)) if status else []


def sizes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """``actor=`` for each elastic role that is not on the line yet."""
    from click.shell_completion import CompletionItem

    status = _status(ctx)
    if status is None:
        return []
    named = {text.partition("=")[0] for text in ctx.params.get(param.name or "") or ()}
    spec = stored_spec(status.folder) if status.folder else {}
    fixed = {role.get("name") for role in spec.get("roles") or () if "scale" not in role}
    words = [f"{role}=" for role in _roles(status) if role not in named and role not in fixed]
    return [CompletionItem(word) for word in _matching(incomplete, words)]


def containers(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the run's containers."""
    status = _status(ctx)
    if status is None:
        return []
    names = dict.fromkeys(c.name for replica in status.replicas for c in replica.containers)
    return _matching(incomplete, names)


def _backend(ctx: click.Context) -> base.Backend:
    """The backend named on the line, or else the verb's default; click has no current context during completion."""
    default = next((param.get_default(ctx) for param in ctx.command.params if param.name == "on"), None)
    name = str(ctx.params.get("on") or default or base.names()[0])
    place = base.Place(ctx.meta.get("callsheet.context", ""), ctx.meta.get("callsheet.namespace", ""))
    return base.backend(name, place) if place != base.Place() else base.backend(name)


def _status(ctx: click.Context) -> base.Status | None:
    """The run named on the line, else the newest active one, else the newest."""
    try:
        backend = _backend(ctx)
        if ctx.params.get("run"):
            return backend.find(ctx.params["run"]).status()
        return next(iter(selection.candidates(backend.runs())), None)
    except CallsheetError:
        return None


def _roles(status: base.Status) -> list[str]:
    return [role.name for role in status.roles]


def _matching(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
