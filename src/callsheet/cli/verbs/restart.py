"""`callsheet restart`: give replicas a fresh start; it does not count against their restart limit."""

from __future__ import annotations

import click

from callsheet.backends import base
from callsheet.cli import formatting, options, output, selection
from callsheet.errors import UserError


@click.command()
@options.run()
@options.targets
@click.option("--all", "every", is_flag=True, help="Every replica of the run.")
@options.on
def command(run: str, targets: tuple[str, ...], every: bool, on: str) -> None:
    """Stop replicas gracefully and start them again, with the same indexes and addresses.

    TARGET is ROLE or ROLE/INDEX.
    """
    if every == bool(targets):
        raise UserError(
            "restart needs to know what to restart: targets, or all of them",
            fix=f"name roles or replicas (`callsheet restart {run} actor/0`) or write --all",
        )
    found = options.backend(on).find(run)
    status = found.status()
    chosen = [base.Target.parse(text) for text in targets] or [
        base.Target(role.name) for role in status.roles
    ]
    for target in chosen:
        if target.container:
            raise UserError(
                f"{target.role}/{target.index}/{target.container} is one container, and only whole replicas restart",
                fix=f"write {target.role}/{target.index}",
            )
        selection.check_target(status, target)
    names = found.restart(chosen)
    output.answer("\n".join(names))
    output.say(f"Restarting {formatting.count(len(names), 'replica')} of {found.id}.", "dim")
