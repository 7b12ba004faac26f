"""Short remarks that several verbs make on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callsheet.cli import output

if TYPE_CHECKING:
    from callsheet.backends.base import Backend
    from callsheet.spec.experiment import Experiment


def unused(backend: Backend, experiment: Experiment) -> None:
    """Say once which fields of the file this backend does not act on."""
    fields = backend.unused(experiment)
    if fields:
        output.say(f"Note: the {backend.name} backend does not act on: {'; '.join(fields)}.", "dim")
