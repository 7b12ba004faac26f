"""`callsheet run`: start experiments, and stay with them unless told to detach."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from callsheet import contract
from callsheet.backends import base
from callsheet.cli import notes, options, output
from callsheet.errors import CallsheetError

if TYPE_CHECKING:
    from callsheet.plan.load import Loaded


@click.command()
@options.files
@click.option("-d", "--detach", is_flag=True, help="Leave it running and give the terminal back.")
@options.on
@options.form("json", "yaml", "name")
def command(files: tuple[str, ...], sets: tuple[str, ...], detach: bool, on: str, form: str | None) -> int:
    """Run experiments and show them until they end; the exit code is the experiment's.

    Ctrl-C stops them gracefully, a second one kills them. With -o, the answer on stdout is how the runs ended
    (with -d: how they began), and log lines go to stderr.
    """
    backend = base.backend(on)
    loaded = options.load(files, sets)
    for item in loaded:
        notes.unused(backend, item.experiment)
    runs = _start(backend, loaded, detach=detach)
    return _leave(runs, form) if detach else _stay(runs, loaded, form)


def _start(backend: base.Backend, loaded: Sequence[Loaded], *, detach: bool) -> list[base.Run]:
    """Start all of them, or none."""
    runs: list[base.Run] = []
    try:
        for item in loaded:
            runs.append(backend.start(item.experiment, base=item.base, source=item.text, detach=detach))
    except CallsheetError as error:
        for run in runs:
            run.stop(reason=f"another experiment did not start: {error.message}")
        raise
    return runs


def _leave(runs: Sequence[base.Run], form: str | None) -> int:
    if form in ("json", "yaml"):
        output.answer(_structured([run.status() for run in runs], form))
    else:
        output.answer("\n".join(run.id for run in runs))
    if form is None:
        for run in runs:
            output.next_commands(
                [
                    (f"callsheet status {run.id}", "how it does"),
                    (f"callsheet logs -f {run.id}", "what it prints"),
                    (f"callsheet stop {run.id}", "end it"),
                ]
            )
    return contract.EXIT_OK


def _stay(runs: Sequence[base.Run], loaded: Sequence[Loaded], form: str | None) -> int:
    from callsheet.cli.attach import Attachment
    from callsheet.cli.screens import choose
    from callsheet.cli.summary import summarise

    attachment = Attachment(runs, choose(form), grace=_grace(loaded))
    ended = attachment.follow()
    # A terminal that is gone cannot be told how it ended; the exit code still says it.
    with contextlib.suppress(OSError) if attachment.hung_up else contextlib.nullcontext():
        for run, status in zip(runs, ended, strict=True):
            summarise(run, status)
        if form in ("json", "yaml"):
            output.answer(_structured(ended, form))
        elif form:
            output.answer("\n".join(status.run for status in ended))
    return next((status.exit_code for status in ended if status.exit_code), contract.EXIT_OK)


def _structured(statuses: Sequence[base.Status], form: str) -> str:
    """One run is one object; several are a list."""
    data = [status.to_data() for status in statuses]
    return output.structured(data[0] if len(data) == 1 else data, form)


def _grace(loaded: Sequence[Loaded]) -> float:
    from callsheet.spec.quantity import parse_duration

    return max(
        parse_duration(role.termination_grace_period)
        for item in loaded
        for role in item.experiment.spec.roles
    )
