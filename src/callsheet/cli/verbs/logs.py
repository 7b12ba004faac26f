"""`callsheet logs`: the output of any choice of replicas, now or as it comes, of running and finished runs."""

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
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the run ends.")
@click.option("--since", metavar="TIME", callback=options.duration, help="Only the last 5m, 1h30m, ...")
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each container."
)
@click.option("--grep", metavar="REGEX", help="Only lines that match.")
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
    """Print the output of replicas: of every one, or of the chosen roles and replicas.

    TARGET is ROLE, ROLE/INDEX or ROLE/INDEX/CONTAINER. With -f, replicas that appear later are followed too.
    Without RUN it is the newest active run; `callsheet logs actor/0` works then as well.
    """
    found, wanted = selection.find_with_targets(options.backend(on), run, targets)
    status = found.status()
    for target in wanted:
        # A replica that is not there yet can be waited for, and one that was scaled away has left its log; a role
        # that is not in the file never comes.
        gone = target.index is not None and _is_gone(status, target)
        selection.check_target(status, base.Target(target.role) if follow or gone else target)
        if gone and not follow and not _has_log(found, target):
            # Whether it was ever there, nobody knows any more.
            raise UserError(
                f"run {status.run} has no replica {target.role}/{target.index}, and none that was scaled away wrote anything",
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
    for chunk in found.log_chunks(query):
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
            f"--grep {pattern!r} is not a regular expression: {error}",
            fix="put a backslash before ( [ * + ? . |",
        ) from None


def _containers(status: base.Status, targets: list[base.Target], container: str | None) -> int:
    """How many logs are chosen; a prefix tells them apart when there are several."""
    groups = {(r.role, r.index): [c.name for c in r.containers] for r in status.replicas}
    for target in targets:
        if target.index is not None:
            # One that was scaled away had the containers that the others have.
            alike = next((names for (role, _), names in groups.items() if role == target.role), [target.role])
            groups.setdefault((target.role, target.index), alike)
    return sum(
        1
        for (role, index), names in groups.items()
        for name in names
        if container in (None, name)
        and (not targets or any(t.matches(role, index) and t.container in (None, name) for t in targets))
    )
