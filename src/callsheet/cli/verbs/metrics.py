"""`callsheet metrics`: print the newest metrics that replicas export."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from callsheet.cli import formatting, options, output, selection

if TYPE_CHECKING:
    from callsheet.metrics.reader import ProcessMetrics

_HEADER = ("REPLICA", "METRIC", "VALUE", "NOW", "P50", "P99")


@click.command()
@options.run(required=False)
@options.targets
@options.on
@options.form("json", "yaml")
def command(run: str | None, targets: tuple[str, ...], on: str, form: str | None) -> None:
    """Print the newest metrics of replicas.

    VALUE is the total of a counter, the value of a gauge, or the number of observations of a histogram. NOW is a
    counter's rate per second; for a counter of seconds, the share of time. P50 and P99 are percentiles of the last
    interval.

    TARGET is ROLE, ROLE/INDEX or ROLE/INDEX/CONTAINER; if omitted, all replicas are selected. If RUN is omitted,
    the newest active run is used.
    """
    chosen_run, wanted = selection.find_with_targets(options.backend(on), run, targets)
    for target in wanted:
        selection.check_target(chosen_run.status(), target)
    chosen = [
        process
        for process in chosen_run.metrics()
        if not wanted
        or any(
            t.matches(process.role, process.index) and t.container in (None, process.container)
            for t in wanted
        )
    ]
    if form:
        output.answer(output.structured([process.to_data() for process in chosen], form))
    elif chosen:
        output.answer(output.table(_HEADER, [row for process in chosen for row in _rows(process)]))
    if not chosen:
        output.say("No metrics: none of these processes exports any.")
    elif not form:
        _report_age(chosen)


def _rows(process: ProcessMetrics) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, value in process.metrics.items():
        unit = _unit(name)
        recent = process.recent.get(name, {})
        rate = process.rates.get(name)
        rows.append(
            (
                process.name,
                name,
                formatting.short(value["count"]) if isinstance(value, dict) else _cell(value, unit),
                _cell(rate, {"seconds": "share", "bytes": "bytes/s"}.get(unit, "/s")),
                _cell(recent.get("p50"), unit),
                _cell(recent.get("p99"), unit),
            )
        )
    return rows


def _unit(name: str) -> str:
    bare = name.partition("{")[0]
    return next((unit for unit in ("seconds", "bytes") if bare.endswith(f"_{unit}")), "")


def _cell(value: Any, unit: str) -> str:
    return "-" if value is None else formatting.quantity(value, unit)


def _report_age(processes: list[ProcessMetrics]) -> None:
    """Say so if some are outdated: the process has ended, or cannot write."""
    old = [process for process in processes if not process.is_current(time.time())]
    if old:
        oldest = max(time.time() - process.time for process in old)
        output.say(
            f"{len(old)} of these processes no longer report; their oldest values are {formatting.age(oldest)} old."
        )
