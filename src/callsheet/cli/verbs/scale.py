"""`callsheet scale`: change the number of replicas while a run is active."""

from __future__ import annotations

import click

from callsheet.backends import base
from callsheet.cli import options, output, selection, shell_completion
from callsheet.errors import UserError


@click.command()
@options.run()
@click.argument("sizes", metavar="ROLE=N...", nargs=-1, required=True, shell_complete=shell_completion.sizes)
@options.on
@options.form("json", "yaml")
def command(run: str, sizes: tuple[str, ...], on: str, form: str | None) -> None:
    """Change the number of replicas of elastic roles.

    A role is elastic if it has `scale` in the experiment file.

    \b
    callsheet scale cartpole actor=8
    """
    chosen = options.backend(on).find(run)
    before = {role.name: role.wanted for role in chosen.status().roles}
    wanted: dict[str, int] = {}
    for role, size in map(_size, sizes):
        if wanted.setdefault(role, size) != size:
            raise UserError(
                f"{role} is given twice, with {wanted[role]} and {size} replicas", fix="leave one of them out"
            )
    for role in wanted:
        selection.check_target(chosen.status(), base.Target(role))
    after = chosen.scale(wanted)
    if form:
        output.answer(output.structured(after.to_data(), form))
        return
    for role, size in wanted.items():
        output.answer(f"{role}: {before[role]} -> {size}")


def _size(text: str) -> tuple[str, int]:
    role, _, number = text.partition("=")
    if not role or not number.isdecimal():
        raise click.BadParameter(f"{text!r} is not ROLE=N; write for example actor=8.", param_hint="ROLE=N")
    return role, int(number)
