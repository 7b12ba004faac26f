"""Check experiments, start them, and follow them: what `callsheet run` and `callsheet train` share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from callsheet import contract
from callsheet.backends import base
from callsheet.cli import options, output
from callsheet.cli.follow import foreground
from callsheet.errors import CallsheetError, InvalidExperiment, Problem

if TYPE_CHECKING:
    from callsheet.plan.load import Loaded
    from callsheet.spec.experiment import Experiment


def launch(
    loaded: Sequence[Loaded],
    on: str,
    form: str | None,
    *,
    detach: bool,
    dry_run: bool = False,
    then: Callable[[Sequence[base.Status]], None] | None = None,
) -> int:
    """Check, start and follow them; the exit code. `then` is called after the report of their end."""
    backend = options.backend(on)
    for item in loaded:
        note_unused_fields(backend, item.experiment)
    _check(backend, loaded)
    if dry_run:
        return _preview(backend, loaded, form)
    runs = _start(backend, loaded, detach=detach)
    for line in (line for run in runs for line in run.notes):
        output.say(line)
    if detach:
        return _detach(runs, on, form)
    return foreground.follow_to_end(runs, on, form, grace=_grace(loaded), then=then)


def _preview(backend: base.Backend, loaded: Sequence[Loaded], form: str | None) -> int:
    """Show what a run would do."""
    if backend.name == "kubernetes":
        from callsheet.cli.verbs import diff

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
    """Collect every mistake in every experiment before any of them starts."""
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


def _detach(runs: Sequence[base.Run], on: str, form: str | None) -> int:
    if form in ("json", "yaml"):
        output.answer(foreground.structured([run.status() for run in runs], form))
    else:
        output.answer("\n".join(run.id for run in runs))
    if form is None:
        for run in runs:
            foreground.print_next_steps(run, on, detached=False)
    return contract.EXIT_OK


def note_unused_fields(backend: base.Backend, experiment: Experiment) -> None:
    """Say which fields of the file have no effect on this backend."""
    fields = backend.unused(experiment)
    if fields:
        output.say(f"Note: the {backend.name} backend ignores: {'; '.join(fields)}.", "dim")


def _grace(loaded: Sequence[Loaded]) -> float:
    from callsheet.spec.quantity import parse_duration

    return max(
        parse_duration(role.termination_grace_period)
        for item in loaded
        for role in item.experiment.spec.roles
    )
