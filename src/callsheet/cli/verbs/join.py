"""`callsheet join`: start one more replica of a role in this terminal, to watch or debug it."""

from __future__ import annotations

import click

from callsheet.backends import base
from callsheet.cli import options, selection, shell_completion


@click.command()
@options.on
@options.run()
@click.argument("role", shell_complete=shell_completion.roles)
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(run: str, role: str, words: tuple[str, ...], on: str) -> int:
    """Start one more replica of a role in this terminal.

    The command runs with the environment of a replica. It leaves the experiment when it ends.

    \b
    callsheet join cartpole actor -- python -m pdb actor.py
    """
    chosen = options.backend(on).find(run)
    selection.check_target(chosen.status(), base.Target(role))
    return chosen.join(role, list(words))
