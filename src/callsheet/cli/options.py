"""The arguments that verbs share, and how a word on the command line becomes a run."""

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
    from callsheet.backends.kubernetes.backend import KubernetesBackend
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
            help="Change a value of the file, such as roles.actor.replicas=8; repeatable.",
        ),
        click.option(
            "-f",
            "--file",
            "files",
            multiple=True,
            required=True,
            metavar="FILE",
            type=click.Path(allow_dash=True),
            help="A file, a folder of files, or - for standard input; repeatable.",
        ),
    ):
        function = option(function)
    return function


def on(function: Decorated) -> Decorated:
    """`--on`, `--context` and `-n`: which backend, and which place of it. `backend` makes use of them."""
    return click.option(
        "--on",
        type=click.Choice(base.names()),
        default=_default,
        envvar="CALLSHEET_ON",
        show_default=f"{base.names()[0]}, or `on` in ~/.config/callsheet/config.toml",
        show_envvar=True,
        help="The backend.",
    )(_place(function))


def _default() -> str:
    """The backend that the user's settings name, else the first."""
    return user_config.load().on or base.names()[0]


def on_cluster(function: Decorated) -> Decorated:
    """The same for verbs that only a cluster has, so that `--on kubernetes` need not be typed; see `cluster`."""
    return click.option(
        "--on",
        type=click.Choice(["kubernetes"]),
        default="kubernetes",
        expose_value=False,
        help="Always Kubernetes: a laptop has nothing of the kind.",
    )(_place(function))


def _place(function: Decorated) -> Decorated:
    for option in (
        click.option(
            "-n",
            "--namespace",
            metavar="NAME",
            expose_value=False,
            callback=_note,
            help="The namespace, on Kubernetes; the context's unless given.",
        ),
        click.option(
            "--context",
            metavar="NAME",
            expose_value=False,
            callback=_note,
            help="The context of the kubeconfig, on Kubernetes; the current one unless given.",
        ),
    ):
        function = option(function)
    return function


def _note(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta[f"callsheet.{param.name}"] = value or ""


def backend(name: str, *, everywhere: bool = False) -> base.Backend:
    """The backend of that name at the place that `--context`, `-n` and `-A` say."""
    meta = click.get_current_context().meta
    place = base.Place(
        meta.get("callsheet.context", ""), meta.get("callsheet.namespace", ""), everywhere=everywhere
    )
    return base.backend(name, place) if place != base.Place() else base.backend(name)


def cluster() -> KubernetesBackend:
    """The cluster, for verbs that only a cluster has."""
    from callsheet.backends.kubernetes.backend import KubernetesBackend

    found = backend("kubernetes")
    assert isinstance(found, KubernetesBackend)
    return found


def where(name: str) -> str:
    """The options that lead to the same place again: `` --on kubernetes -n team``; empty for the default."""
    meta = click.get_current_context().meta
    words = [f"--on {name}"] if name != (os.environ.get("CALLSHEET_ON") or _default()) else []
    for option, flag in (("context", "--context"), ("namespace", "-n")):
        value = meta.get(f"callsheet.{option}")
        words += [f"{flag} {value}"] if value else []
    return "".join(f" {word}" for word in words)


def form(*choices: str) -> Callable[[Decorated], Decorated]:
    """`-o`: in which form the answer is printed."""
    return click.option("-o", "--output", "form", type=click.Choice(choices), help="The answer's form.")


def watch(function: Decorated) -> Decorated:
    """`-w`: keep showing."""
    return click.option("-w", "--watch", is_flag=True, help="Keep showing what changes.")(function)


def container(function: Decorated) -> Decorated:
    """`-c`: which container of a group."""
    return click.option(
        "-c",
        "--container",
        metavar="CONTAINER",
        shell_complete=shell_completion.containers,
        help="Which container of a group.",
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
    """An empty word is a variable that was never set, and no way to say "the newest"."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise UserError("the name of a run is empty", fix="write a run's id; `callsheet ps -a` lists them")
    return value


def targets(function: Decorated) -> Decorated:
    """The arguments TARGET: ROLE, ROLE/INDEX or ROLE/INDEX/CONTAINER."""
    return click.argument(
        "targets", metavar="[TARGET]...", nargs=-1, shell_complete=shell_completion.targets
    )(function)


def duration(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Seconds in an option such as `--since 5m`."""
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
