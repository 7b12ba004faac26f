"""`callsheet attach`: take a run up again that goes on without us."""

from __future__ import annotations

import click

from callsheet.cli import options, selection
from callsheet.cli.follow import foreground

_TAIL = 20


@click.command()
@options.run(required=False)
@click.option(
    "--tail",
    type=click.IntRange(min=0),
    default=_TAIL,
    show_default=True,
    metavar="N",
    help="How many past lines of each container to begin with.",
)
@options.on
@options.form("json", "yaml", "name")
def command(run: str | None, tail: int, on: str, form: str | None) -> int:
    """Show a run until it ends; the exit code is the experiment's. Without RUN it is the newest active one.

    On a cluster this is also what ends the run by its lifecycle's rules while nothing else there does. Ctrl-C leaves;
    the run goes on.
    """
    found = selection.find_run(options.backend(on), run)
    status = found.status()
    if status.done:
        foreground.report_end([found], [status], form)
        return foreground.exit_code([status])
    found.attach()
    return foreground.follow_to_end([found], on, form, tail=tail)
