"""Options and arguments that verbs share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from callsheet.backends import base, user_config
from callsheet.cli import shell_completion
from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.backends.cluster import ClusterBackend
    from callsheet.plan.load import Loaded

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

watch = click.option("-w", "--watch", is_flag=True, help="Watch for changes.")
container = click.option(
    "-c",
    "--container",
    metavar="CONTAINER",
    shell_complete=shell_completion.containers,
    help="Container, if the replica has several.",
)
targets = click.argument("targets", metavar="[TARGET]...", nargs=-1, shell_complete=shell_completion.targets)
_file = click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    type=click.Path(allow_dash=True),
    help="Experiment file, folder of files, or - for standard input; repeatable.",
)
_set = click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="PATH=VALUE",
    help="Override a value of the file, such as roles.actor.replicas=8; repeatable.",
)


def files(function: Decorated) -> Decorated:
    """`-f` and `--set`: which experiments; see `load`."""
    return _file(_set(function))


def load(paths: Sequence[str], sets: Sequence[str]) -> list[Loaded]:
    """The experiments of `-f` and `--set`."""
    from callsheet.plan.load import load as load_files

    return load_files(paths, sets=sets, stdin=sys.stdin)


def form(*choices: str) -> Callable[[Decorated], Decorated]:
    """`-o`: the output format."""
    return click.option("-o", "--output", "form", type=click.Choice(choices), help="Output format.")


def run(*, required: bool = True, many: bool = False) -> Callable[[Decorated], Decorated]:
    """The argument RUN: an id, the beginning of one, or an experiment's name."""
    several: dict[str, Any] = {"metavar": "RUN..." if required else "[RUN]...", "nargs": -1} if many else {}
    return click.argument(
        "runs" if many else "run",
        required=required,
        shell_complete=shell_completion.runs,
        callback=_no_empty_run,
        **several,
    )


def _no_empty_run(_ctx: click.Context, _param: click.Parameter, value: Any) -> Any:
    """Refuse an empty RUN: probably an unset shell variable, and not a request for the newest run."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise UserError("RUN is empty", fix="write a run's id; `callsheet ps -a` lists them")
    return value


def duration(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Parse an option such as `--since 5m` into seconds."""
    if value is None:
        return None
    from callsheet.spec.quantity import parse_duration

    try:
        return parse_duration(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a duration; write 90s, 15m, 1h30m or 7d.") from None


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta[f"callsheet.{param.name}"] = value or ""


def _default() -> str:
    """The backend of the user's configuration, else the first."""
    return user_config.load().on or base.names()[0]


_context = click.option(
    "--context",
    metavar="NAME",
    expose_value=False,
    callback=_remember,
    help="Context of the kubeconfig (default: the current one).",
)
_namespace = click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    expose_value=False,
    callback=_remember,
    help="Kubernetes namespace (default: that of the context).",
)
_on = click.option(
    "--on",
    type=click.Choice(base.names()),
    default=_default,
    envvar="CALLSHEET_ON",
    show_default=f"{base.names()[0]}, or `on` in ~/.config/callsheet/config.toml",
    show_envvar=True,
    help="The backend to use.",
)
_on_cluster = click.option(
    "--on",
    type=click.Choice(base.CLUSTERS),
    default=base.CLUSTERS[0],
    expose_value=False,
    callback=_remember,
    help="The cluster backend to use.",
)


def on(function: Decorated) -> Decorated:
    """`--on`, `--context` and `-n`: which backend, and where; see `backend`."""
    return _on(_context(_namespace(function)))


def on_cluster(function: Decorated) -> Decorated:
    """The same for verbs that need a cluster, which is then the default; see `cluster`."""
    return _on_cluster(_context(_namespace(function)))


def backend(name: str, *, everywhere: bool = False) -> base.Backend:
    """The backend of that name, at the place given by `--context`, `-n` and `-A`."""
    meta = click.get_current_context().meta
    place = base.Place(
        meta.get("callsheet.context", ""), meta.get("callsheet.namespace", ""), everywhere=everywhere
    )
    return base.backend(name, place) if place != base.Place() else base.backend(name)


def cluster() -> ClusterBackend:
    """The cluster, for verbs that need one."""
    from callsheet.backends.cluster import ClusterBackend

    chosen = backend(click.get_current_context().meta["callsheet.on"])
    assert isinstance(chosen, ClusterBackend)
    return chosen


def where(name: str) -> str:
    """The options that select the same place again: `` --on kubernetes -n team``; empty for the default."""
    meta = click.get_current_context().meta
    words = [f"--on {name}"] if name != (os.environ.get("CALLSHEET_ON") or _default()) else []
    for option, flag in (("context", "--context"), ("namespace", "-n")):
        value = meta.get(f"callsheet.{option}")
        words += [f"{flag} {value}"] if value else []
    return "".join(f" {word}" for word in words)
