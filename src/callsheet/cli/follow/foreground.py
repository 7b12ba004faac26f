"""Follow runs until they end or the user detaches, then report how they ended or how to reattach."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence

from callsheet import contract
from callsheet.backends.base import LogQuery, Run, Status, Target
from callsheet.cli import formatting, options, output
from callsheet.errors import CallsheetError

_MAX_FAILED = 5
_LAST_LINES = 10


def follow_to_end(
    runs: Sequence[Run],
    on: str,
    form: str | None,
    *,
    grace: float = 0.0,
    tail: int | None = None,
    then: Callable[[Sequence[Status]], None] | None = None,
) -> int:
    """Show the runs until they end; the exit code. `then` adds to the report of the end, if a person reads it."""
    from callsheet.cli.follow.follower import Follower
    from callsheet.cli.follow.screen import choose_screen

    follower = Follower(runs, choose_screen(form), grace=grace, tail=tail)
    ended = follower.follow()
    # A closed terminal cannot show how it ended; the exit code still says it.
    with contextlib.suppress(OSError) if follower.output_lost else contextlib.nullcontext():
        if follower.detached is not None:
            for run in runs:
                print_next_steps(run, on)
            return follower.detached
        report_end(runs, ended, form)
        if then is not None and form is None:
            then(ended)
    return exit_code(ended)


def report_end(runs: Sequence[Run], ended: Sequence[Status], form: str | None) -> None:
    """Print how runs ended."""
    for run, status in zip(runs, ended, strict=True):
        _summarize(run, status)
    if form in ("json", "yaml"):
        output.answer(structured(ended, form))
    elif form:
        output.answer("\n".join(status.run for status in ended))


def exit_code(ended: Sequence[Status]) -> int:
    """The first that is not 0."""
    return next((status.exit_code for status in ended if status.exit_code), contract.EXIT_OK)


def structured(statuses: Sequence[Status], form: str) -> str:
    """One run is one object; several are a list."""
    data = [status.to_data() for status in statuses]
    return output.structured(data[0] if len(data) == 1 else data, form)


def print_next_steps(run: Run, on: str, *, detached: bool = True) -> None:
    """Say that a run continues without us, what then does not happen, and which commands come next."""
    if detached:
        output.say(f"{run.experiment} keeps running as run {run.id}.")
    if run.needs_attached_client:
        output.say(
            "While nobody is attached, nothing ends the run when its success roles finish, its deadline passes or "
            "its restarts are used up.",
            "dim",
        )
    where = options.where(on)
    attach = (
        [(f"callsheet attach{where} {run.id}", "reattach")] if detached or run.needs_attached_client else []
    )
    output.next_commands(
        [
            *attach,
            (f"callsheet status{where} {run.id}", "show its state"),
            (f"callsheet logs{where} -f {run.id}", "follow its logs"),
            (f"callsheet stop{where} {run.id}", "stop it"),
        ]
    )


def _summarize(run: Run, status: Status) -> None:
    """Print on stderr why the run ended, the last lines of what failed, and where the results are."""
    phase = output.paint(status.phase, output.PHASE_COLORS[status.phase], sys.stderr)
    reason = f": {status.reason}" if status.reason else ""
    output.say(f"{status.experiment} {phase} after {formatting.age(status.uptime)}{reason}")
    _print_failed(run, status)
    for replica in status.replicas:
        for container in replica.containers:
            if container.log_dropped or container.log_error:
                cause = f" ({container.log_error})" if container.log_error else ""
                dropped = formatting.size(container.log_dropped)
                output.say(f"  log of {replica.name}: {dropped} dropped{cause}", "yellow")
    results = f", results in {output.short_path(status.folder)}" if status.folder else ""
    output.say(f"  run {status.run}{results}")


def _print_failed(run: Run, status: Status) -> None:
    failed = [replica for replica in status.replicas if replica.phase == "Failed"]
    for replica in failed[:_MAX_FAILED]:
        name = output.paint(replica.name, "error", sys.stderr)
        known = not replica.reason or replica.reason in status.reason
        output.say(f"  last lines of {name}:" if known else f"  {name} failed: {replica.reason}")
        query = LogQuery(targets=[Target(replica.role, replica.index)], tail=_LAST_LINES)
        try:
            lines = list(run.logs(query))
        except CallsheetError as error:
            output.say(f"    (cannot read its log: {error.message})", "dim")
            continue
        for line in lines[-_LAST_LINES:]:
            output.say(f"    │ {formatting.clean(line.text, colors=output.has_color(sys.stderr))}")
    if len(failed) > _MAX_FAILED:
        more = formatting.count(len(failed) - _MAX_FAILED, "more failed replica")
        output.say(f"  and {more}; see `callsheet status`")
