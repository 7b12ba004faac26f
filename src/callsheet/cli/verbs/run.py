"""`callsheet run`: start experiments and follow them."""

from __future__ import annotations

import click

from callsheet.cli import launch, options


@click.command()
@options.files
@click.option("-d", "--detach", is_flag=True, help="Start in the background and return.")
@click.option(
    "--dry-run", is_flag=True, help="Check everything and show what would happen, without starting anything."
)
@options.on
@options.form("json", "yaml", "name")
def command(
    files: tuple[str, ...], sets: tuple[str, ...], detach: bool, dry_run: bool, on: str, form: str | None
) -> int:
    """Run experiments and follow them until they end.

    The exit code is the experiment's. Ctrl-C stops the runs gracefully; a second Ctrl-C kills them. On a cluster,
    Ctrl-C only detaches, and the runs keep running.

    With -o, the final status (with -d, the initial one) goes to standard output, and log lines to standard error.
    """
    return launch.launch(options.load(files, sets), on, form, detach=detach, dry_run=dry_run)
