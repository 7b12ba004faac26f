"""`callsheet logs`: print or follow the logs of replicas, of running and finished runs."""

from __future__ import annotations

import re
import sys

import click

from callsheet.backends import base
from callsheet.cli import formatting, options, output, selection
from callsheet.cli.follow.log_lines import Prefixes
from callsheet.errors import UserError


@click.command()
@options.run(required=False)
@options.targets
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until the run ends.")
@click.option(
    "--since", metavar="TIME", callback=options.duration, help="Only lines written in the last 5m, 1h30m, ..."
)
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each container."
)
@click.option("--grep", metavar="REGEX", help="Only lines that match this regular expression.")
@options.container
@options.on
def command(
    run: str | None,
    targets: tuple[str, ...],
    follow: bool,
    since: float | None,
    tail: int | None,
    grep: str | None,
    container: str | None,
    on: str,
) -> None:
    """Print the logs of replicas.

    TARGET is ROLE, ROLE/INDEX or ROLE/INDEX/CONTAINER; if omitted, all replicas are selected. With -f, replicas
    that start later are followed too. If RUN is omitted, the newest active run is used: `callsheet logs actor/0`
    works.
    """
    chosen, wanted = selection.find_with_targets(options.backend(on), run, targets)
    status = chosen.status()
    for target in wanted:
        # A replica may still start, or have left its log when it was scaled away; an unknown role is a mistake.
        gone = target.index is not None and _is_gone(status, target)
        selection.check_target(status, base.Target(target.role) if follow or gone else target)
        if gone and not follow and not _has_log(chosen, target):
            raise UserError(
                f"run {status.run} has no replica {target.role}/{target.index}, and no log of an earlier one",
                fix=selection.replicas_hint(status, target.role),
            )
    if container is not None:
        selection.check_container(status, wanted, container)
    if grep is not None:
        _check_regex(grep)
    query = base.LogQuery(
        targets=wanted, container=container, follow=follow, tail=tail, since=since, grep=grep
    )
    prefixes = Prefixes(status)
    one = not follow and _containers(status, wanted, container) == 1
    screen, colors = output.is_terminal(sys.stdout), output.has_color(sys.stdout)
    for chunk in chosen.log_chunks(query):
        shown = (
            chunk.with_lines(formatting.clean(text, colors=colors) for text in chunk.texts())
            if screen
            else chunk
        )
        sys.stdout.write(shown.prefixed("" if one else prefixes.of(chunk)))
        if follow:
            sys.stdout.flush()


def _is_gone(status: base.Status, target: base.Target) -> bool:
    return not any(target.matches(replica.role, replica.index) for replica in status.replicas)


def _has_log(run: base.Run, target: base.Target) -> bool:
    return next(iter(run.logs(base.LogQuery(targets=[target], tail=1))), None) is not None


def _check_regex(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(
            f"--grep {pattern!r} is not a valid regular expression: {error}",
            fix="put a backslash before ( [ * + ? . |",
        ) from None


def _containers(status: base.Status, targets: list[base.Target], container: str | None) -> int:
    """How many containers are selected; with several, each line gets a prefix."""
    groups = {(r.role, r.index): [c.name for c in r.containers] for r in status.replicas}
    for target in targets:
        if target.index is not None:
            # One that was scaled away had the same containers as the others.
            alike = next((names for (role, _), names in groups.items() if role == target.role), [target.role])
            groups.setdefault((target.role, target.index), alike)
    return sum(
        1
        for (role, index), names in groups.items()
        for name in names
        if container in (None, name)
        and (not targets or any(t.matches(role, index) and t.container in (None, name) for t in targets))
    )
