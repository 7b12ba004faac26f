"""`callsheet stop`: stop runs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from callsheet.backends import base
from callsheet.cli import options, output
from callsheet.errors import UserError


@click.command()
@options.run(required=False, many=True)
@click.option("--all", "every", is_flag=True, help="Stop every active run.")
@click.option("--now", is_flag=True, help="Kill processes immediately, without a grace period.")
@click.option("--wait/--no-wait", default=True, help="Wait until the runs have ended.")
@options.on
def command(runs: tuple[str, ...], every: bool, now: bool, wait: bool, on: str) -> None:
    """Stop runs gracefully.

    Every process gets SIGTERM, and SIGKILL after its grace period. Results and logs are kept. If RUN is omitted,
    the only active run is stopped.
    """
    backend = options.backend(on)
    stopping = []
    for run in _chosen(backend, runs, every):
        status = run.status()
        if status.done:
            output.say(f"{run.id} has already ended ({status.phase}).")
            continue
        run.stop(kill=now, reason=f"stopped with `callsheet stop{' --now' if now else ''}`")
        output.say(f"Stopping {run.id} …", "dim")
        stopping.append(run)
    for run in stopping:
        output.answer(f"{run.id}: {run.wait().phase}" if wait else run.id)


def _chosen(backend: base.Backend, runs: Sequence[str], every: bool) -> list[base.Run]:
    if every and runs:
        raise UserError("--all cannot be combined with a run", fix="leave one of them out")
    if runs:
        return [backend.find(reference) for reference in runs]
    active = [status.run for status in backend.runs() if not status.done]
    if not active:
        raise UserError("there is no active run", fix="`callsheet ps -a` lists finished ones")
    if len(active) > 1 and not every:
        raise UserError(
            f"{len(active)} runs are active: {', '.join(active)}", fix="name the ones to stop, or use --all"
        )
    return [backend.find(run) for run in active]
