"""`callsheet ps`: list runs."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from callsheet.backends import base
from callsheet.cli import formatting, options, output

_INTERVAL = 1.0
_HEADER: tuple[str, ...] = ("RUN", "EXPERIMENT", "PHASE", "READY", "RESTARTS", "AGE", "FOLDER")


@click.command()
@click.option("-a", "--all", "every", is_flag=True, help="Include finished runs.")
@click.option(
    "-A", "--all-namespaces", "everywhere", is_flag=True, help="List runs in all namespaces (on Kubernetes)."
)
@options.watch
@options.on
@options.form("json", "yaml", "wide", "name")
def command(every: bool, everywhere: bool, watch: bool, on: str, form: str | None) -> None:
    """List runs.

    Only active runs are listed; -a lists finished ones too.
    """
    backend = options.backend(on, everywhere=everywhere)

    def now() -> list[base.Status]:
        return [status for status in backend.runs() if every or not status.done]

    runs = now()
    if not runs and not watch:
        if form in ("json", "yaml"):
            output.answer(output.structured([], form))
        output.say("No runs." if every else "No active runs. `callsheet ps -a` lists finished ones too.")
        return
    if not watch:
        output.answer(_formatted(runs, form))
        return
    with output.Redrawn() as screen:
        while True:
            screen.show(_formatted(runs, form), key=[(s.run, s.phase, s.restarts, _ready(s)) for s in runs])
            time.sleep(_INTERVAL)
            runs = now()


def _formatted(runs: Sequence[base.Status], form: str | None) -> str:
    """The runs in the form that -o asks for."""
    if form in ("json", "yaml"):
        return output.structured([status.to_data() for status in runs], form)
    if form == "name":
        return "\n".join(status.run for status in runs)
    header, rows = _HEADER, [_row(status) for status in runs]
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
        _ready(status),
        str(status.restarts),
        formatting.age(time.time() - status.created),
        output.short_path(status.folder),
    )


def _ready(status: base.Status) -> str:
    """``3/4``: ready replicas out of all."""
    return f"{sum(r.ready for r in status.roles)}/{sum(r.wanted for r in status.roles)}"
