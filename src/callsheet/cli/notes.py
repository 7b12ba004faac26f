"""Short remarks that several verbs make on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.cli import options, output

if TYPE_CHECKING:
    from callsheet.backends.base import Backend, Run
    from callsheet.spec.experiment import Experiment


def unused(backend: Backend, experiment: Experiment) -> None:
    """Say once which fields of the file this backend does not act on."""
    fields = backend.unused(experiment)
    if fields:
        output.say(f"Note: the {backend.name} backend does not act on: {'; '.join(fields)}.", "dim")


def how_to_return(run: Run, on: str, *, first: bool = True) -> None:
    """Say that a run goes on without us, what then does not happen by itself, and what to type now."""
    if first:
        output.say(f"{run.experiment} goes on as run {run.id}.")
    if on != "local":
        output.say(
            "While nobody is attached, nothing ends it when its success roles have ended, its deadline has passed or "
            "its restarts are used up.",
            "dim",
        )
    where = options.where(on)
    attach = [(f"callsheet attach{where} {run.id}", "take it up again")] if first or on != "local" else []
    output.next_commands(
        [
            *attach,
            (f"callsheet status{where} {run.id}", "how it does"),
            (f"callsheet logs{where} -f {run.id}", "what it prints"),
            (f"callsheet stop{where} {run.id}", "end it"),
        ]
    )
