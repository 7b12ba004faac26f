"""`callsheet exec`: run a command with a replica's environment."""

from __future__ import annotations

import click

from callsheet.backends import base
from callsheet.cli import options, selection, shell_completion
from callsheet.errors import UserError


@click.command()
@options.container
@click.option(
    "-i",
    "--stdin",
    is_flag=True,
    help="Pass standard input to the command (Kubernetes only; always on locally).",
)
@click.option("-t", "--tty", is_flag=True, help="Allocate a terminal (Kubernetes only; always on locally).")
@options.on
@options.run()
@click.argument("replica", metavar="ROLE/INDEX", shell_complete=shell_completion.replicas)
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    run: str, replica: str, words: tuple[str, ...], container: str | None, stdin: bool, tty: bool, on: str
) -> int:
    """Run a command with a replica's environment.

    It runs in the replica's working directory. The exit code is that of the command.

    \b
    callsheet exec cartpole actor/0 -- env
    callsheet exec -it cartpole actor/0 -- bash
    """
    target = base.Target.parse(replica)
    if target.index is None:
        raise UserError(f"{replica!r} is a role, not a replica", fix=f"write {replica}/0")
    chosen = options.backend(on).find(run)
    target = base.Target(target.role, target.index, container or target.container)
    selection.check_target(chosen.status(), target)
    return chosen.exec(target, list(words), stdin=stdin, tty=tty)
