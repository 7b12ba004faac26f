"""Stay with runs until they end or the user leaves, then say how they ended or how to come back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from callsheet import contract
from callsheet.backends import base
from callsheet.cli import notes, output


def stay(
    runs: Sequence[base.Run],
    on: str,
    form: str | None,
    *,
    grace: float = 0.0,
    tail: int | None = None,
    then: Callable[[Sequence[base.Status]], None] | None = None,
) -> int:
    """Show the runs until they end; the exit code. `then` says more about how they ended, where a person reads it."""
    from callsheet.cli.attachment import Attachment
    from callsheet.cli.screens import choose

    attachment = Attachment(runs, choose(form), grace=grace, tail=tail)
    ended = attachment.follow()
    # A terminal that is gone cannot be told how it ended; the exit code still says it.
    with contextlib.suppress(OSError) if attachment.hung_up else contextlib.nullcontext():
        if attachment.left is not None:
            for run in runs:
                notes.how_to_return(run, on)
            return attachment.left
        tell(runs, ended, form)
        if then is not None and form is None:
            then(ended)
    return exit_code(ended)


def tell(runs: Sequence[base.Run], ended: Sequence[base.Status], form: str | None) -> None:
    """Say how runs have ended."""
    from callsheet.cli.summary import summarize

    for run, status in zip(runs, ended, strict=True):
        summarize(run, status)
    if form in ("json", "yaml"):
        output.answer(structured(ended, form))
    elif form:
        output.answer("\n".join(status.run for status in ended))


def exit_code(ended: Sequence[base.Status]) -> int:
    """The first that is not 0."""
    return next((status.exit_code for status in ended if status.exit_code), contract.EXIT_OK)


def structured(statuses: Sequence[base.Status], form: str) -> str:
    """One run is one object; several are a list."""
    data = [status.to_data() for status in statuses]
    return output.structured(data[0] if len(data) == 1 else data, form)
