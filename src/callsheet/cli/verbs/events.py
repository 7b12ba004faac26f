"""`callsheet events`: show a run's Kubernetes events."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING

import click

from callsheet.cli import formatting, options, output, selection

if TYPE_CHECKING:
    from callsheet.backends.cluster import ClusterEvent

_HEADER = ("AGE", "TYPE", "OBJECT", "REASON", "COUNT", "MESSAGE")


@click.command()
@options.run(required=False)
@click.option("--warnings", is_flag=True, help="Show only warnings.")
@options.on_cluster
@options.form("json", "yaml")
def command(run: str | None, warnings: bool, form: str | None) -> None:
    """Show the Kubernetes events of a run.

    These are the events of its pods, Jobs and StatefulSets, oldest first. The cluster keeps events for an hour. If
    RUN is omitted, the newest active run is used.
    """
    backend = options.cluster()
    chosen = backend.find(run or selection.find_run(backend, None).id)
    events = [event for event in chosen.events() if not warnings or event.type == "Warning"]
    if form:
        output.answer(output.structured([asdict(event) for event in events], form))
    elif events:
        output.answer(output.table(_HEADER, [_row(event) for event in events]))
    else:
        output.say("The cluster has no events about this run.")


def _row(event: ClusterEvent) -> tuple[str, ...]:
    age = "-"
    if event.time:
        age = formatting.age(time.time() - datetime.fromisoformat(event.time).timestamp())
    return (age, event.type, event.object, event.reason, str(event.count), event.message)
