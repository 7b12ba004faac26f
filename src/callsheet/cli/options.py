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


def files(function: Decorated) -> Decorated:
    """`-f` and `--set`: which experiments."""
    for option in (
        click.option(
            "--set",
            "sets",
            multiple=True,
            metavar="PATH=VALUE",
            help="Override a value of the file, such as roles.actor.replicas=8; repeatable.",
        ),
        click.option(
            "-f",
            "--file",
            "files",
            multiple=True,
            required=True,
            metavar="FILE",
            type=click.Path(allow_dash=True),
            help="Experiment file, folder of files, or - for standard input; repeatable.",
        ),
    ):
        function = option(function)
    return function


def on(function: Decorated) -> Decorated:
    """`--on`, `--context` and `-n`: which backend, and where; see `backend`."""
    return click.option(
        "--on",
        type=click.Choice(base.names()),
        default=_default,
        envvar="CALLSHEET_ON",
        show_default=f"{base.names()[0]}, or `on` in ~/.config/callsheet/config.toml",
        show_envvar=True,
        help="The backend to use.",
    )(_place(function))


def _default() -> str:
    """The backend of the user's configuration, else the first."""
    return user_config.load().on or base.names()[0]


def on_cluster(function: Decorated) -> Decorated:
    """The same for verbs that need a cluster, which is then the default; see `cluster`."""
    return click.option(
        "--on",
        type=click.Choice(base.CLUSTERS),
        default=base.CLUSTERS[0],
        expose_value=False,
        callback=_remember,
        help="The cluster backend to use.",
    )(_place(function))


def _place(function: Decorated) -> Decorated:
    for option in (
        click.option(
            "-n",
            "--namespace",
            metavar="NAME",
            expose_value=False,
            callback=_remember,
            help="Kubernetes namespace (default: that of the context).",
        ),
        click.option(
            "--context",
            metavar="NAME",
            expose_value=False,
            callback=_remember,
            help="Context of the kubeconfig (default: the current one).",
        ),
    ):
        function = option(function)
    return function


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta[f"callsheet.{param.name}"] = value or ""


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


def form(*choices: str) -> Callable[[Decorated], Decorated]:
    """`-o`: the output format."""
    return click.option("-o", "--output", "form", type=click.Choice(choices), help="Output format.")


def watch(function: Decorated) -> Decorated:
    """`-w`: watch for changes."""
    return click.option("-w", "--watch", is_flag=True, help="Watch for changes.")(function)


def container(function: Decorated) -> Decorated:
    """`-c`: a container of a group."""
    return click.option(
        "-c",
        "--container",
        metavar="CONTAINER",
        shell_complete=shell_completion.containers,
        help="Container, if the replica has several.",
    )(function)


def run(*, required: bool = True, many: bool = False) -> Callable[[Decorated], Decorated]:
    """The argument RUN: an id, the beginning of one, or an experiment's name."""
    if many:
        return click.argument(
            "runs",
            metavar="RUN..." if required else "[RUN]...",
            nargs=-1,
            required=required,
            shell_complete=shell_completion.runs,
            callback=_no_empty_run,
        )
    return click.argument(
        "run", required=required, shell_complete=shell_completion.runs, callback=_no_empty_run
    )


def _no_empty_run(
    _ctx: click.Context, _param: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """Refuse an empty RUN: probably an unset shell variable, and not a request for the newest run."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise UserError("RUN is empty", fix="write a run's id; `callsheet ps -a` lists them")
    return value


def targets(function: Decorated) -> Decorated:
    """The arguments TARGET: ROLE, ROLE/INDEX or ROLE/INDEX/CONTAINER."""
    return click.argument(
        "targets", metavar="[TARGET]...", nargs=-1, shell_complete=shell_completion.targets
    )(function)


def duration(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Parse an option such as `--since 5m` into seconds."""
    if value is None:
        return None
    from callsheet.spec.quantity import parse_duration

    try:
        return parse_duration(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a duration; write 90s, 15m, 1h30m or 7d.") from None


def load(paths: Sequence[str], sets: Sequence[str]) -> list[Loaded]:
    """The experiments of `-f` and `--set`."""
    from callsheet.plan.load import load as load_files

    return load_files(paths, sets=sets, stdin=sys.stdin)
