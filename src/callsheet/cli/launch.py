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

_DIFF_COLORS = {"+": "green", "-": "red", "@": "cyan"}
_CHANGES = {
    "create": "would be created",
    "change": "would be changed",
    "replace": "would be replaced, which restarts its pods",
    "delete": "would be deleted",
}


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
        print_changes(planned_changes(backend, loaded), form)
        return contract.EXIT_OK
    runs = _start(backend, loaded, detach=detach)
    for line in (line for run in runs for line in run.notes):
        output.say(line)
    if detach:
        return _detach(runs, on, form)
    return foreground.follow_to_end(runs, on, form, grace=_grace(loaded), then=then)


def planned_changes(backend: base.Backend, loaded: Sequence[Loaded]) -> list[base.PlannedChange]:
    """What running the files would do."""
    changes: list[base.PlannedChange] = []
    for item in loaded:
        with item.placing():
            changes += backend.preview(item.experiment, base=item.base)
    return changes


def print_changes(changes: Sequence[base.PlannedChange], form: str | None) -> None:
    """Print planned changes in the form that -o asks for."""
    if form in ("json", "yaml"):
        data = [{"action": c.action, "kind": c.kind, "name": c.name} for c in changes]
        output.answer(output.structured(data, form))
    elif form == "name" and changes:
        output.answer("\n".join(f"{c.kind}/{c.name}" for c in changes))
    elif form is None:
        for change in changes:
            detail = f": {change.detail}" if change.detail else ""
            output.say(f"{change.kind}/{change.name} {_CHANGES[change.action]}{detail}", "bold")
            for line in change.diff:
                output.answer(output.paint(line, _DIFF_COLORS.get(line[:1], "")))
        if not changes:
            output.say("Nothing would change.")


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
        # Ctrl-C between two starts must not leave the first run behind.
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
