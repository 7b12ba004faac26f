"""How a run ended, in a few lines: why, which replicas failed with what last words, where the results are."""

from __future__ import annotations

import sys

from callsheet.backends.base import LogQuery, Run, Status, Target
from callsheet.cli import output, words
from callsheet.errors import CallsheetError

_FAILED_SHOWN = 5
_LAST_WORDS = 10


def summarize(run: Run, status: Status) -> None:
    """Print the summary on stderr."""
    phase = output.paint(status.phase, output.PHASE_COLORS[status.phase], sys.stderr)
    reason = f": {status.reason}" if status.reason else ""
    output.say(f"{status.experiment} {phase} after {words.age(status.uptime)}{reason}")
    _failed(run, status)
    for replica in status.replicas:
        for container in replica.containers:
            if container.log_dropped or container.log_error:
                said = f" ({container.log_error})" if container.log_error else ""
                output.say(
                    f"  log of {replica.name}: {words.size(container.log_dropped)} dropped{said}", "yellow"
                )
    results = f", results in {output.short_path(status.folder)}" if status.folder else ""
    output.say(f"  run {status.run}{results}")


def _failed(run: Run, status: Status) -> None:
    failed = [replica for replica in status.replicas if replica.phase == "Failed"]
    for replica in failed[:_FAILED_SHOWN]:
        name = output.paint(replica.name, "error", sys.stderr)
        told = not replica.reason or replica.reason in status.reason
        output.say(f"  last lines of {name}:" if told else f"  {name} failed: {replica.reason}")
        try:
            lines = list(run.logs(LogQuery(targets=[Target(replica.role, replica.index)], tail=_LAST_WORDS)))
        except CallsheetError as error:
            output.say(f"    (its log cannot be read: {error.message})", "dim")
            continue
        for line in lines[-_LAST_WORDS:]:
            output.say(f"    │ {words.clean(line.text, colors=output.has_color(sys.stderr))}")
    if len(failed) > _FAILED_SHOWN:
        output.say(
            f"  and {words.count(len(failed) - _FAILED_SHOWN, 'more failed replica')}; see `callsheet status`"
        )
