"""`callsheet ps`: which runs there are."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from callsheet.backends import base
from callsheet.cli import formatting, options, output

_INTERVAL = 1.0
HEADER: tuple[str, ...] = ("RUN", "EXPERIMENT", "PHASE", "READY", "RESTARTS", "AGE", "FOLDER")


@click.command()
@click.option("-a", "--all", "every", is_flag=True, help="Finished runs too.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="In every namespace, on Kubernetes.")
@options.watch
@options.on
@options.form("json", "yaml", "wide", "name")
def command(every: bool, everywhere: bool, watch: bool, on: str, form: str | None) -> None:
    """List the runs that are active; with -a also those that have ended."""
    backend = options.backend(on, everywhere=everywhere)

    def now() -> list[base.Status]:
        return [status for status in backend.runs() if every or not status.done]

    runs = now()
    if not runs and not watch:
        if form in ("json", "yaml"):
            output.answer(output.structured([], form))
        hint = "" if every else " `callsheet ps -a` lists those that have ended."
        output.say(f"No run{'' if every else ' is active'}.{hint}")
        return
    if not watch:
        output.answer(shown(runs, form))
        return
    with output.Redrawn() as screen:
        while True:
            screen.show(shown(runs, form), key=[(s.run, s.phase, s.restarts, ready(s)) for s in runs])
            time.sleep(_INTERVAL)
            runs = now()


def shown(runs: Sequence[base.Status], form: str | None) -> str:
    """The runs in the wanted form."""
    if form in ("json", "yaml"):
        return output.structured([status.to_data() for status in runs], form)
    if form == "name":
        return "\n".join(status.run for status in runs)
    header, rows = HEADER, [_row(status) for status in runs]
    if any(status.namespace for status in runs):
        header = ("NAMESPACE", *header)
        rows = [(s.namespace, *row) for row, s in zip(rows, runs, strict=True)]
    if form == "wide":
        header = (*header, "SUPERVISOR", "REASON")
        rows = [(*row, str(s.supervisor or "-"), s.reason) for row, s in zip(rows, runs, strict=True)]
    return output.table(header, rows, cut=False)


def _row(status: base.Status) -> tuple[str, ...]:
    return (
        status.run,
        status.experiment,
        status.phase,
        ready(status),
        str(status.restarts),
        formatting.age(time.time() - status.created),
        output.short_path(status.folder),
    )


def ready(status: base.Status) -> str:
    """``3/4``: replicas that are ready, of those that are wanted."""
    return f"{sum(r.ready for r in status.roles)}/{sum(r.wanted for r in status.roles)}"
