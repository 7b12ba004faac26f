"""`callsheet cp`: copy files to and from a replica."""

from __future__ import annotations

from pathlib import Path

import click

from callsheet.backends import base
from callsheet.cli import formatting, options, output, selection
from callsheet.errors import UserError


@click.command()
@options.container
@options.on_cluster
@options.run()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
def command(run: str, source: str, target: str, container: str | None) -> None:
    """Copy files to and from a replica.

    Write the replica's side as ROLE/INDEX:PATH; it may be a folder. The replica's image must contain tar.

    \b
    callsheet cp cartpole learner/0:/tmp/model.pt .
    callsheet cp cartpole ./maps actor/2:/tmp/
    """
    chosen = options.cluster().find(run)
    from_replica, to_replica = _remote(source), _remote(target)
    if (from_replica is None) == (to_replica is None):
        raise UserError(
            "one side of the copy must be a replica, and the other this machine",
            fix="write the replica as ROLE/INDEX:PATH, such as learner/0:/tmp/model.pt",
        )
    replica, path = from_replica or to_replica or (base.Target(""), "")
    replica = base.Target(replica.role, replica.index or 0, container or replica.container)
    selection.check_target(chosen.status(), replica)
    if from_replica:
        count = chosen.copy_from(replica, path, Path(target))
    else:
        count = chosen.copy_to(replica, Path(source), path)
    output.say(f"Copied {formatting.count(count, 'file')}.")


def _remote(text: str) -> tuple[base.Target, str] | None:
    """The replica and the path of ``actor/2:/tmp/x``; None for a local path."""
    where, colon, path = text.partition(":")
    if not colon or "/" not in where or where.startswith((".", "/")):
        return None
    if not path:
        raise UserError(
            f"{text!r} has no path", fix=f"write the path after the colon, such as {text}/data/model.pt"
        )
    return base.Target.parse(where), path
