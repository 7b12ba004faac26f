"""`callsheet stop`: end runs, gracefully unless told otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import click

from callsheet.backends import base
from callsheet.cli import options, output
from callsheet.errors import UserError


@click.command()
@options.run(required=False, many=True)
@click.option("--all", "every", is_flag=True, help="Every active run.")
@click.option("--now", is_flag=True, help="Kill at once instead of waiting out the grace period.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Return when the run has ended.")
@options.on
def command(runs: tuple[str, ...], every: bool, now: bool, wait: bool, on: str) -> None:
    """End runs: SIGTERM to every process, SIGKILL after its grace period. Results and logs stay.

    Without RUN it is the only active run.
    """
    backend = options.backend(on)
    found = _chosen(backend, runs, every)
    asked = []
    for run in found:
        status = run.status()
        if status.done:
            output.say(f"{run.id} has already ended: {status.phase}.")
            continue
        run.stop(kill=now, reason=f"stopped with `callsheet stop{' --now' if now else ''}`")
        output.say(f"Stopping {run.id} …", "dim")
        asked.append(run)
    for run in asked:
        output.answer(f"{run.id}: {run.wait().phase}" if wait else run.id)


def _chosen(backend: base.Backend, runs: Sequence[str], every: bool) -> list[base.Run]:
    if every and runs:
        raise UserError("--all and a run's name were both given", fix="leave one of them out")
    if runs:
        return [backend.find(reference) for reference in runs]
    active = [status.run for status in backend.runs() if not status.done]
    if not active:
        raise UserError("no run is active", fix="`callsheet ps -a` lists those that have ended")
    if len(active) > 1 and not every:
        raise UserError(
            f"{len(active)} runs are active: {', '.join(active)}", fix="name the ones to stop, or write --all"
        )
    return [backend.find(run) for run in active]
