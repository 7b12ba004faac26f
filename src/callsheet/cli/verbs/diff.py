"""`callsheet diff`: show what a run would change in the cluster."""

from __future__ import annotations

import click

from callsheet import contract
from callsheet.cli import launch, options


@click.command()
@options.files
@options.on_cluster
@options.form("json", "yaml", "name")
def command(files: tuple[str, ...], sets: tuple[str, ...], form: str | None) -> int:
    """Show what a run would change in the cluster.

    This asks the API server, but changes nothing. The exit code is 0 if nothing would change and 1 otherwise.
    """
    changes = launch.planned_changes(options.cluster(), options.load(files, sets))
    launch.print_changes(changes, form)
    return contract.EXIT_FAILED if changes else contract.EXIT_OK
