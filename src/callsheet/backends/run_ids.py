"""Run ids, and which run a person means by one: the same rules on every backend."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from callsheet.errors import UserError

_FIRST = "bcdfghjkmnpqrstvwxz"
_REST = _FIRST + "23456789"
_LENGTH = 8


def new_run_id() -> str:
    """Eight letters and digits that cannot be misread and spell no word."""
    return secrets.choice(_FIRST) + "".join(secrets.choice(_REST) for _ in range(_LENGTH - 1))


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run that may be meant."""

    experiment: str
    run: str
    active: bool
    namespace: str = ""


def choose_run(reference: str, known: Sequence[KnownRun], *, missing: UserError) -> KnownRun:
    """The run meant by an id, the beginning of one, ``experiment/id``, or an experiment's name.

    An experiment's name means its newest active run, or else its newest. `known` is sorted newest first; `missing` is
    raised if nothing matches.
    """
    experiment, slash, part = reference.rpartition("/")
    runs = [run for run in known if not slash or run.experiment == experiment]
    named = [] if slash else [run for run in runs if run.experiment == reference]
    newest = [run for run in named if run.active][:1] or named[:1]
    if len({run.namespace for run in named}) > 1:
        newest = named
    exact = [run for run in runs if run.run == part]
    matching = exact or newest or [run for run in runs if part and run.run.startswith(part)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        shown = ", ".join(f"{run.experiment}/{run.run}" for run in matching)
        raise UserError(f"{reference!r} could be any of {shown}", fix="write more of the id")
    raise missing
