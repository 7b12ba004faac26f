"""`callsheet status`: show the state of one run."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from callsheet.backends import base
from callsheet.cli import formatting, options, output, selection
from callsheet.cli.follow import role_metrics

if TYPE_CHECKING:
    from callsheet.metrics.reader import ShownMetric

_WIDE = 120


@click.command()
@options.run(required=False)
@options.watch
@options.on
@options.form("json", "yaml", "wide", "name")
def command(run: str | None, watch: bool, on: str, form: str | None) -> None:
    """Show the state of a run, its roles and its replicas.

    RUN is a run's id, the beginning of one, or an experiment's name. If omitted, the newest active run is used.
    """
    chosen = selection.find_run(options.backend(on), run)
    if not watch:
        output.answer(_formatted(chosen, chosen.status(), form))
        return
    last = None
    with output.Redrawn() as screen:
        for last in chosen.watch(1.0):
            screen.show(_formatted(chosen, last, form), key=_without_clock(last))
    if last is not None and output.is_terminal(sys.stdout):
        output.answer(_formatted(chosen, last, form))


def _formatted(run: base.Run, status: base.Status, form: str | None) -> str:
    """The run in the form that -o asks for."""
    if form == "name":
        return status.run
    metrics = role_metrics.of(run, ended=status.done)
    if form in ("json", "yaml"):
        return output.structured(status.to_data() | _metrics_data(metrics), form)
    parts = [_head(status), _roles(status, metrics), _replicas(status, cut=form != "wide")]
    if form == "wide":
        parts.append(_containers(status))
    return "\n\n".join(parts)


def _head(status: base.Status) -> str:
    ready = sum(role.ready for role in status.roles)
    wanted = sum(role.wanted for role in status.roles)
    phase = output.paint(status.phase, output.PHASE_COLORS[status.phase])
    facts = [
        ("run", status.run),
        ("experiment", status.experiment),
        ("namespace", status.namespace),
        ("phase", phase if status.done else f"{phase}, {ready} of {wanted} ready"),
        ("reason", status.reason),
        ("started", f"{_clock(status.created)} ({formatting.age(time.time() - status.created)} ago)"),
        ("ended", f"{_clock(status.finished)}, exit code {status.exit_code}" if status.done else ""),
        ("folder", output.short_path(status.folder) if status.folder else ""),
        *((f"{name} at", _address(status, name)) for name in status.exposed),
        *(("warning", output.paint(warning, "yellow")) for warning in status.warnings),
    ]
    longest = max(len(name) for name, value in facts if value)
    return "\n".join(f"{name.ljust(longest)}  {value}" for name, value in facts if value)


def _address(status: base.Status, name: str) -> str:
    """Where an endpoint can be reached; a Service's name means nothing outside the cluster."""
    address = status.exposed[name] or "waiting for an address"
    if status.backend in base.CLUSTERS and address.startswith(f"{status.experiment}-{name}:"):
        return f"{address} in the cluster; from here, use `callsheet port-forward {status.run} {name}`"
    return address


def _metrics_data(metrics: dict[str, list[ShownMetric]]) -> dict[str, Any]:
    """Metrics by role and name; nothing if there are none."""
    data = {
        role: {metric.name: {"value": metric.value, "unit": metric.unit} for metric in listed}
        for role, listed in metrics.items()
    }
    return {"metrics": data} if data else {}


def _roles(status: base.Status, metrics: dict[str, list[ShownMetric]]) -> str:
    header = ["ROLE", "READY", "SUCCEEDED", "FAILED", "RESTARTS"]
    rows = [
        [r.name, f"{r.ready}/{r.wanted}", str(r.succeeded), str(r.failed), str(r.restarts)]
        for r in status.roles
    ]
    if metrics:
        header.append("METRICS")
        for row in rows:
            row.append(role_metrics.text(metrics.get(row[0], [])))
    return output.table(header, rows)


def _replicas(status: base.Status, *, cut: bool) -> str:
    rows = [
        (
            replica.name + (" (joined)" if replica.joined else ""),
            replica.phase,
            "yes" if replica.ready else "no",
            str(replica.restarts),
            formatting.age(replica.uptime) if replica.uptime else "-",
            replica.host,
            replica.reason,
        )
        for replica in status.replicas
    ]
    header = ("REPLICA", "PHASE", "READY", "RESTARTS", "UPTIME", "ADDRESS", "REASON")
    if not output.is_terminal(sys.stdout) or output.screen_columns() >= _WIDE:
        return output.table(header, rows, cut=cut)
    # On a narrow screen there is no room for a reason: it gets a line of its own.
    first, *lines = output.table(header[:-1], [row[:-1] for row in rows]).split("\n")
    reasons = ["" if not row[-1] else f"\n  {output.paint(row[-1], 'yellow')}" for row in rows]
    return "\n".join([first, *(line + reason for line, reason in zip(lines, reasons, strict=True))])


def _containers(status: base.Status) -> str:
    rows = [
        (
            f"{replica.name}/{c.name}",
            str(c.pid or "-"),
            str(c.restarts),
            "-" if c.exit_code is None else str(c.exit_code),
            formatting.size(c.log_bytes),
            formatting.size(c.log_dropped) if c.log_dropped else "-",
            c.log_error or formatting.clean(c.last_line, colors=False),
        )
        for replica in status.replicas
        for c in replica.containers
    ]
    return output.table(("CONTAINER", "PID", "RESTARTS", "EXIT", "LOG", "DROPPED", "LAST LINE"), rows)


def _clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _without_clock(status: base.Status) -> list[object]:
    """What counts as a change of the status: not the passing of time, not the logs."""
    replicas = [(r.name, r.phase, r.ready, r.attempt, r.reason) for r in status.replicas]
    return [status.phase, status.reason, status.warnings, replicas]
