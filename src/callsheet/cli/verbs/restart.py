"""`callsheet restart`: restart replicas; it does not count against their restart limit."""

from __future__ import annotations

import click

from callsheet.backends import base
from callsheet.cli import formatting, options, output, selection
from callsheet.errors import UserError


@click.command()
@options.run()
@options.targets
@click.option("--all", "every", is_flag=True, help="Restart every replica of the run.")
@options.on
def command(run: str, targets: tuple[str, ...], every: bool, on: str) -> None:
    """Restart replicas gracefully.

    They keep their index and address. TARGET is ROLE or ROLE/INDEX.
    """
    if every == bool(targets):
        raise UserError(
            "name the roles or replicas to restart, or use --all",
            fix=f"for example `callsheet restart {run} actor/0`",
        )
    chosen = options.backend(on).find(run)
    status = chosen.status()
    wanted = [base.Target.parse(text) for text in targets] or [
        base.Target(role.name) for role in status.roles
    ]
    for target in wanted:
        if target.container:
            raise UserError(
                f"{target.role}/{target.index}/{target.container} is a container; only whole replicas can be restarted",
                fix=f"write {target.role}/{target.index}",
            )
        selection.check_target(status, target)
    names = chosen.restart(wanted)
    output.answer("\n".join(names))
    output.say(f"Restarting {formatting.count(len(names), 'replica')} of {chosen.id}.", "dim")
