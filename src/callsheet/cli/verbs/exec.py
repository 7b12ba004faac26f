"""`callsheet exec`: look at an experiment with a replica's own eyes."""

from __future__ import annotations

import click

from callsheet.backends import base
from callsheet.cli import options, selection, shell_completion
from callsheet.errors import UserError


@click.command()
@options.container
@click.option(
    "-i", "--stdin", is_flag=True, help="Hand standard input over, on Kubernetes; here it always is."
)
@click.option(
    "-t", "--tty", is_flag=True, help="Be a terminal to the command, on Kubernetes; here it has this one."
)
@options.on
@options.run()
@click.argument("replica", metavar="ROLE/INDEX", shell_complete=shell_completion.replicas)
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    run: str, replica: str, words: tuple[str, ...], container: str | None, stdin: bool, tty: bool, on: str
) -> int:
    """Run a command with the environment and in the working directory of a replica; its exit code is ours.

    \b
    callsheet exec cartpole actor/0 -- env
    callsheet exec -it cartpole actor/0 -- bash
    """
    target = base.Target.parse(replica)
    if target.index is None:
        raise UserError(f"{replica!r} is a role, not a replica", fix=f"write {replica}/0")
    found = options.backend(on).find(run)
    target = base.Target(target.role, target.index, container or target.container)
    selection.check_target(found.status(), target)
    return found.exec(target, list(words), stdin=stdin, tty=tty)
