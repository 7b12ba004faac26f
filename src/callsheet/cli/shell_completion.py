"""What a shell may complete: runs, roles, replicas, containers. Looks at the runs' state alone, and stays silent when
there is none: nobody waits for a Tab, and nobody reads an error there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from callsheet.backends import base
from callsheet.errors import CallsheetError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_LOOKING = ("status", "logs", "metrics", "attach", "plot", "evaluate")
"""Verbs that take any run; the others take active ones."""


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of the runs that the verb can take, then the names of their experiments."""
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
    return verb in _LOOKING or not status.done


def targets(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the run's roles and replicas."""
    status = _status(ctx)
    if status is None:
        return []
    return _beginning(incomplete, [*_roles(status), *(replica.name for replica in status.replicas)])


def replicas(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the run's replicas."""
    status = _status(ctx)
    return _beginning(incomplete, [replica.name for replica in status.replicas]) if status else []


def roles(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the run's roles."""
    status = _status(ctx)
    return _beginning(incomplete, _roles(status)) if status else []


def sizes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """``actor=`` for each elastic role that has not been named yet."""
    from click.shell_completion import CompletionItem

    status = _status(ctx)
    if status is None:
        return []
    named = {text.partition("=")[0] for text in ctx.params.get(param.name or "") or ()}
    fixed = _fixed(status)
    words = [f"{role}=" for role in _roles(status) if role not in named and role not in fixed]
    return [CompletionItem(word) for word in _beginning(incomplete, words)]


def containers(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Names of the run's containers."""
    status = _status(ctx)
    if status is None:
        return []
    names = dict.fromkeys(c.name for replica in status.replicas for c in replica.containers)
    return _beginning(incomplete, names)


def _backend(ctx: click.Context) -> base.Backend:
    """The backend that the line names, or else the verb's own; no context is current while a shell asks."""
    own = next((param.get_default(ctx) for param in ctx.command.params if param.name == "on"), None)
    name = str(ctx.params.get("on") or own or base.names()[0])
    place = base.Place(ctx.meta.get("callsheet.context", ""), ctx.meta.get("callsheet.namespace", ""))
    return base.backend(name, place) if place != base.Place() else base.backend(name)


def _status(ctx: click.Context) -> base.Status | None:
    """The run that the line names, else the newest active one, else the newest."""
    try:
        found = _backend(ctx)
        if ctx.params.get("run"):
            return found.find(ctx.params["run"]).status()
        known = found.runs()
    except CallsheetError:
        return None
    return next((status for status in known if not status.done), known[0] if known else None)


def _roles(status: base.Status) -> list[str]:
    return [role.name for role in status.roles]


def _fixed(status: base.Status) -> set[str]:
    """Roles that cannot be scaled, by the experiment that is kept with the run; none where there is no such file."""
    import yaml

    from callsheet.backends.local.supervisor.files import Layout

    if not status.folder:
        return set()
    try:
        with open(Layout(status.folder).experiment, encoding="utf-8") as file:
            data: Any = next(iter(yaml.safe_load_all(file)))
        return {role["name"] for role in data["spec"]["roles"] if "scale" not in role}
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError, StopIteration):
        return set()


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
