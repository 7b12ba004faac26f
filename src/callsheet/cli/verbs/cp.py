"""`callsheet cp`: files to and from a replica."""

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
    """Copy a file or folder to or from a replica; that side is written ROLE/INDEX:PATH. The image needs tar.

    \b
    callsheet cp cartpole learner/0:/tmp/model.pt .
    callsheet cp cartpole ./maps actor/2:/tmp/
    """
    from callsheet.backends.kubernetes.client.copy import copy_from, copy_to

    found = options.cluster().find(run)
    there, here = _remote(source), _remote(target)
    if (there is None) == (here is None):
        raise UserError(
            "one side of a copy is a replica and the other is this machine",
            fix="write ROLE/INDEX:PATH for the replica, such as learner/0:/tmp/model.pt",
        )
    replica, path = there or here or (base.Target(""), "")
    replica = base.Target(replica.role, replica.index or 0, container or replica.container)
    selection.check_target(found.status(), replica)
    pod, inside = found.pod(replica), replica.container or ""
    count = (
        copy_from(found.api, pod, inside, path, Path(target))
        if there
        else copy_to(found.api, pod, inside, Path(source), path)
    )
    output.say(f"Copied {formatting.count(count, 'file')}.")


def _remote(text: str) -> tuple[base.Target, str] | None:
    """The replica and the path of ``actor/2:/tmp/x``; None for a path of this machine."""
    where, colon, path = text.partition(":")
    if not colon or "/" not in where or where.startswith((".", "/")):
        return None
    if not path:
        raise UserError(
            f"{text!r} names no path", fix=f"write the path after the colon, such as {text}/data/model.pt"
        )
    return base.Target.parse(where), path
