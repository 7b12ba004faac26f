"""The arguments that verbs share, and how a word on the command line becomes a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from callsheet.backends import base, settings
from callsheet.cli import completing, output
from callsheet.errors import UserError, did_you_mean

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
    return settings.load().on or base.names()[0]


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
        shell_complete=completing.containers,
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
            shell_complete=completing.runs,
            callback=_no_empty_run,
        )
    return click.argument("run", required=required, shell_complete=completing.runs, callback=_no_empty_run)


def _no_empty_run(
    _ctx: click.Context, _param: click.Parameter, value: str | tuple[str, ...] | None
) -> str | tuple[str, ...] | None:
    """An empty word is a variable that was never set, and no way to say "the newest"."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise UserError("the name of a run is empty", fix="write a run's id; `callsheet ps -a` lists them")
    return value


def targets(function: Decorated) -> Decorated:
    """The arguments TARGET: ROLE, ROLE/INDEX or ROLE/INDEX/CONTAINER."""
    return click.argument("targets", metavar="[TARGET]...", nargs=-1, shell_complete=completing.targets)(
        function
    )


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


def find(backend: base.Backend, reference: str | None, *, quiet: bool = False) -> base.Run:
    """The run that is meant: by name, or else the newest that is active, or else the newest."""
    if reference is not None:
        return backend.find(reference)
    known = backend.runs()
    if not known:
        raise UserError("there is no run yet", fix="start one with `callsheet run -f FILE`")
    candidates = [status for status in known if not status.done] or known
    if len(candidates) > 1 and not quiet:
        output.say(f"The newest of {len(candidates)} runs: {candidates[0].run}.", "dim")
    return backend.find(candidates[0].run)


def find_with_targets(
    backend: base.Backend, run: str | None, words: Sequence[str]
) -> tuple[base.Run, list[base.Target]]:
    """The run and the targets; the first word may be a target of the newest run when no run has that name."""
    targets = [base.Target.parse(word) for word in words]
    try:
        return find(backend, run), targets
    except UserError:
        if run is None:
            raise
        try:
            first = base.Target.parse(run)
            newest = find(backend, None, quiet=True)
            known = [role.name for role in newest.status().roles]
        except UserError:
            known = []
        if not known or first.role not in known:
            raise
        return newest, [first, *targets]


def check_target(status: base.Status, target: base.Target) -> None:
    """Refuse a role, index or container that the run does not have."""
    roles = [role.name for role in status.roles]
    if target.role not in roles:
        raise UserError(f"run {status.run} has no role {target.role!r}", fix=_choose(target.role, roles))
    if target.index is None:
        return
    replicas = {r.index: r for r in status.replicas if r.role == target.role}
    if target.index not in replicas:
        raise UserError(
            f"run {status.run} has no replica {target.role}/{target.index}",
            fix=replicas_there(status, target.role),
        )
    names = [c.name for c in replicas[target.index].containers]
    if target.container and target.container not in names:
        raise UserError(
            f"{target.role}/{target.index} has no container {target.container!r}",
            fix=_choose(target.container, names),
        )


def replicas_there(status: base.Status, role: str) -> str:
    """Which replicas of a role could have been meant."""
    indexes = [replica.index for replica in status.replicas if replica.role == role]
    last = f" to {role}/{max(indexes)}" if len(indexes) > 1 else ""
    return f"there are: {role}/{min(indexes)}{last}" if indexes else "there are: none now"


def check_container(status: base.Status, targets: Sequence[base.Target], container: str) -> None:
    """Refuse a container that none of the chosen replicas has."""
    roles = {target.role for target in targets} or {role.name for role in status.roles}
    names = list(dict.fromkeys(c.name for r in status.replicas if r.role in roles for c in r.containers))
    if names and container not in names:
        whose = " and ".join(sorted(roles)) if targets else f"run {status.run}"
        raise UserError(f"{whose} has no container {container!r}", fix=_choose(container, names))


def _choose(word: str, names: Sequence[str]) -> str:
    return did_you_mean(word, names, f"choose one of: {', '.join(names)}")
