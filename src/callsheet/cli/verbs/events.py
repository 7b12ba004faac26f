"""`callsheet events`: what the cluster noted about a run."""

from __future__ import annotations

import time
from typing import Any

import click

from callsheet.cli import formatting, options, output, selection

_HEADER = ("AGE", "TYPE", "OBJECT", "REASON", "COUNT", "MESSAGE")


@click.command()
@options.run(required=False)
@click.option("--warnings", is_flag=True, help="Only what is wrong.")
@options.on_cluster
@options.form("json", "yaml")
def command(run: str | None, warnings: bool, form: str | None) -> None:
    """Show what the cluster noted about a run's pods, Jobs and StatefulSets, oldest first.

    The cluster forgets them after an hour. Without RUN it is the newest active run.
    """
    backend = options.cluster()
    chosen = selection.find_run(backend, run)
    found = backend.find(chosen.id).events()
    if warnings:
        found = [event for event in found if event.get("type") == "Warning"]
    if form:
        output.answer(output.structured([_data(event) for event in found], form))
    elif found:
        output.answer(output.table(_HEADER, [_row(event) for event in found]))
    else:
        output.say("The cluster notes nothing about it.")


def _data(event: dict[str, Any]) -> dict[str, Any]:
    involved = event.get("involvedObject") or {}
    return {
        "time": _stamp(event),
        "type": event.get("type", ""),
        "object": f"{involved.get('kind', '')}/{involved.get('name', '')}",
        "reason": event.get("reason", ""),
        "count": event.get("count") or 1,
        "message": event.get("message", ""),
    }


def _row(event: dict[str, Any]) -> tuple[str, ...]:
    from callsheet.backends.kubernetes.observe.observed import moment

    data = _data(event)
    age = formatting.age(time.time() - moment(data["time"])) if data["time"] else "-"
    return (age, data["type"], data["object"], data["reason"], str(data["count"]), data["message"])


def _stamp(event: dict[str, Any]) -> str:
    return (
        event.get("lastTimestamp")
        or event.get("eventTime")
        or event["metadata"].get("creationTimestamp")
        or ""
    )
