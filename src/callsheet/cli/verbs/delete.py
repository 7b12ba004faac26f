"""`callsheet delete`: delete finished runs, after showing what will be deleted."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

import click

from callsheet import contract
from callsheet.backends import base
from callsheet.cli import formatting, options, output
from callsheet.errors import UserError


@click.command()
@options.run(required=False, many=True)
@click.option(
    "--older-than",
    metavar="TIME",
    callback=options.duration,
    help="Delete every run that ended longer ago than this, such as 7d or 12h.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted, and delete nothing.")
@options.on
def command(runs: tuple[str, ...], older_than: float | None, yes: bool, dry_run: bool, on: str) -> int:
    """Delete finished runs with their results and logs.

    It shows what will be deleted and asks for confirmation first. A run that is still stopping is waited for.
    """
    backend = options.backend(on)
    if bool(runs) == (older_than is not None):
        raise UserError("name the runs to delete, or use --older-than", fix="for example --older-than 7d")
    chosen = _named(backend, runs) if runs else _old(backend, older_than or 0.0)
    if not chosen:
        output.say("No finished run is that old.")
        return contract.EXIT_OK
    sizes = [_size(status.folder) for status in chosen]
    rows = [
        (
            s.run,
            s.experiment,
            s.phase,
            formatting.age(time.time() - s.created),
            formatting.size(size),
            output.short_path(s.folder),
        )
        for s, size in zip(chosen, sizes, strict=True)
    ]
    output.answer(output.table(("RUN", "EXPERIMENT", "PHASE", "AGE", "SIZE", "FOLDER"), rows, cut=False))
    total = f"{formatting.count(len(chosen), 'run')}, {formatting.size(sum(sizes))}"
    if dry_run:
        output.say(f"Would delete {total}; nothing was deleted.")
        return contract.EXIT_OK
    if not yes and not _confirmed(total):
        output.say("Nothing was deleted.")
        return contract.EXIT_FAILED
    for status in chosen:
        run = backend.find(status.run)
        if not run.status().done:
            output.say(f"Waiting for {run.id} to end …", "dim")
            run.wait()
        run.delete()
    output.say(f"Deleted {total}.")
    return contract.EXIT_OK


def _named(backend: base.Backend, runs: Sequence[str]) -> list[base.Status]:
    statuses = {status.run: status for status in (backend.find(reference).status() for reference in runs)}
    active = [s.run for s in statuses.values() if not s.done and s.phase != "Stopping"]
    if active:
        raise UserError(
            f"{', '.join(active)} has not ended", fix=f"stop it first: `callsheet stop {' '.join(active)}`"
        )
    return list(statuses.values())


def _old(backend: base.Backend, seconds: float) -> list[base.Status]:
    limit = time.time() - seconds
    return [
        status for status in backend.runs() if status.done and (status.finished or status.created) < limit
    ]


def _confirmed(total: str) -> bool:
    if not sys.stdin.isatty():
        raise UserError(f"{total} would be deleted, and there is no terminal to confirm on", fix="add --yes")
    return click.confirm(f"Permanently delete {total}?", err=True)


def _size(folder: str) -> int:
    """Bytes that the folder takes on disk."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(path, name)).st_blocks * 512
            except OSError:
                continue
    return total
