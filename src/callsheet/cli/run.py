"""`callsheet run`: start experiments, and stay with them unless told to detach."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from callsheet import contract
from callsheet.backends import base
from callsheet.cli import notes, options, output, staying
from callsheet.errors import CallsheetError, InvalidExperiment, Problem

if TYPE_CHECKING:
    from callsheet.plan.load import Loaded


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
    return launch(options.load(files, sets), on, form, detach=detach, dry_run=dry_run)


def launch(
    loaded: Sequence[Loaded],
    on: str,
    form: str | None,
    *,
    detach: bool,
    dry_run: bool = False,
    then: Callable[[Sequence[base.Status]], None] | None = None,
) -> int:
    """Check, start, and stay with them; `then` is called when they have ended and a person has been told so."""
    backend = options.backend(on)
    for item in loaded:
        notes.unused(backend, item.experiment)
    _check(backend, loaded)
    if dry_run:
        return _foresee(backend, loaded, form)
    runs = _start(backend, loaded, detach=detach)
    for line in (line for run in runs for line in run.notes):
        output.say(line)
    if detach:
        return _leave(runs, on, form)
    return staying.stay(runs, on, form, grace=_grace(loaded), then=then)


def _foresee(backend: base.Backend, loaded: Sequence[Loaded], form: str | None) -> int:
    """Say what a run would do. A cluster is asked what it would accept; this machine has been checked."""
    if backend.name == "kubernetes":
        from callsheet.cli import diff

        diff.show(diff.changes(options.cluster(), loaded), form)
        return contract.EXIT_OK
    for item in loaded:
        sizes = ", ".join(f"{role.replicas} {role.name}" for role in item.experiment.spec.roles)
        output.say(f"{item.experiment.name} would be started: {sizes}. Nothing was.")
    names = [item.experiment.name for item in loaded]
    if form in ("json", "yaml"):  # in the shape of a cluster's answer
        data = [{"action": "create", "kind": "Experiment", "name": name} for name in names]
        output.answer(output.structured(data, form))
    elif form:
        output.answer("\n".join(f"Experiment/{name}" for name in names))
    return contract.EXIT_OK


def _check(backend: base.Backend, loaded: Sequence[Loaded]) -> None:
    """Find every mistake of every experiment before any of them starts."""
    problems: list[Problem] = []
    for item in loaded:
        try:
            with item.placing():
                backend.check(item.experiment, base=item.base)
        except InvalidExperiment as error:
            problems += error.problems
    if problems:
        raise InvalidExperiment(problems)


def _start(backend: base.Backend, loaded: Sequence[Loaded], *, detach: bool) -> list[base.Run]:
    """Start all of them, or none."""
    runs: list[base.Run] = []
    try:
        for item in loaded:
            with item.placing():
                runs.append(backend.start(item.experiment, base=item.base, source=item.text, detach=detach))
    except BaseException as error:
        # Ctrl-C between two starts must not leave the first one behind either.
        why = error.message if isinstance(error, CallsheetError) else type(error).__name__
        for run in runs:
            with contextlib.suppress(CallsheetError):
                run.stop(reason=f"another experiment did not start: {why}")
        raise
    return runs


def _leave(runs: Sequence[base.Run], on: str, form: str | None) -> int:
    if form in ("json", "yaml"):
        output.answer(staying.structured([run.status() for run in runs], form))
    else:
        output.answer("\n".join(run.id for run in runs))
    if form is None:
        for run in runs:
            notes.how_to_return(run, on, first=False)
    return contract.EXIT_OK


def _grace(loaded: Sequence[Loaded]) -> float:
    from callsheet.spec.quantity import parse_duration

    return max(
        parse_duration(role.termination_grace_period)
        for item in loaded
        for role in item.experiment.spec.roles
    )
