"""`callsheet run`: start experiments, and stay with them unless told to detach."""

from __future__ import annotations

import click

from callsheet.cli import launch, options


@click.command()
@options.files
@click.option("-d", "--detach", is_flag=True, help="Leave it running and give the terminal back.")
@click.option("--dry-run", is_flag=True, help="Check everything and say what would happen; start nothing.")
@options.on
@options.form("json", "yaml", "name")
def command(
    files: tuple[str, ...], sets: tuple[str, ...], detach: bool, dry_run: bool, on: str, form: str | None
) -> int:
    """Run experiments and show them until they end; the exit code is the experiment's.

    Ctrl-C stops them gracefully, a second one kills them; on a cluster it only leaves, and the runs go on. With -o,
    the answer on stdout is how the runs ended (with -d: how they began), and log lines go to stderr.
    """
    return launch.launch(options.load(files, sets), on, form, detach=detach, dry_run=dry_run)
