"""`callsheet join`: one more member of a role, started by hand where one can see and debug it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from callsheet.backends import base
from callsheet.cli import options, selection, shell_completion
from callsheet.errors import UserError


@click.command()
@options.on
@options.run()
@click.argument("role", shell_complete=shell_completion.roles)
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(run: str, role: str, words: tuple[str, ...], on: str) -> int:
    """Start one more member of a role in this terminal, with the environment that a replica would have.

    \b
    callsheet join cartpole actor -- python -m pdb actor.py
    """
    found = options.backend(on).find(run)
    # Not in the protocol: on a cluster nobody's terminal is part of the experiment's network.
    start: Callable[[str, Sequence[str]], int] | None = getattr(found, "join", None)
    if start is None:
        raise UserError(f"a member cannot join by hand on {on}", fix=f"use `callsheet scale {run} {role}=N`")
    selection.check_target(found.status(), base.Target(role))
    return start(role, list(words))
