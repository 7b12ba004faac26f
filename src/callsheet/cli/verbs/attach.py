"""`callsheet attach`: reattach to a running experiment."""

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
    metavar="N",
    help="Start with the last N log lines of each container.",
)
@options.on
@options.form("json", "yaml", "name")
def command(run: str | None, tail: int, on: str, form: str | None) -> int:
    """Reattach to a running experiment.

    Shows the run until it ends; the exit code is the experiment's. Ctrl-C detaches, and the run keeps running. If
    RUN is omitted, the newest active run is used.

    On a cluster, an attached client also enforces the experiment's lifecycle rules: success, deadline and restarts.
    """
    chosen = selection.find_run(options.backend(on), run)
    status = chosen.status()
    if status.done:
        foreground.report_end([chosen], [status], form)
        return foreground.exit_code([status])
    chosen.attach()
    return foreground.follow_to_end([chosen], on, form, tail=tail)
