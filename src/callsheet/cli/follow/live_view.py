"""The live view: the state of the roles at the bottom of the terminal, log lines scrolling above it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.live import Live
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from callsheet.backends.base import LogLine, ReplicaStatus, RoleStatus, Status
from callsheet.cli import formatting, output
from callsheet.cli.follow import role_metrics
from callsheet.cli.follow.changes import Message
from callsheet.cli.follow.screen import FollowedRun
from callsheet.cli.follow.usage import Sampler

_SAMPLE = 1.0
_MAX_WAITING = 3
_MIN_ROLES = 3
_STYLES = {"error": "bold red"}


class _Raw:
    """Text that is ready for the terminal; rich would spend milliseconds per line to find that out."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._text)


class LiveScreen:
    """Prints everything on stdout, which is the same terminal as stderr."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._sampler = Sampler()
        self._sampled = 0.0
        self._metrics = role_metrics.MetricsPoller()
        self._live.start()

    def lines(self, lines: Sequence[tuple[FollowedRun, LogLine]]) -> None:
        colors = not self._console.no_color
        self._print(
            "".join(
                f"{followed.prefixes.of(line)}{formatting.clean(line.text, colors=colors)}\n"
                for followed, line in lines
            )
        )

    def message(self, followed: FollowedRun | None, message: Message) -> None:
        who = "" if followed is None or followed.alone else f"{followed.run.experiment}: "
        self._print(output.paint(f"● {who}{message.text}", message.style) + "\n")

    def refresh(self, runs: Sequence[FollowedRun]) -> None:
        self._metrics.follow(runs)
        if time.monotonic() >= self._sampled + _SAMPLE:
            self._sampled = time.monotonic()
            self._sample(runs)
        # Room for the ^C that a terminal echoes: wrapped, it would push the view up by a line.
        limited = Constrain(view(runs, self._console.height // 2), self._console.width - len("^C^C"))
        self._live.update(limited, refresh=True)

    def close(self) -> None:
        # Clear the view: the summary that follows shows how the run ended.
        self._metrics.close()
        self._live.update(Text(""))
        self._live.transient = True
        self._live.stop()

    def _sample(self, runs: Sequence[FollowedRun]) -> None:
        """Read CPU and memory once for all roles of all runs."""
        pids: dict[tuple[int, str], list[int]] = {}
        for number, followed in enumerate(runs):
            for replica in followed.status.replicas if followed.status else ():
                pids.setdefault((number, replica.role), []).extend(c.pid for c in replica.containers if c.pid)
        for followed in runs:
            followed.usage = {}
        for (number, role), usage in self._sampler.sample(pids).items():
            runs[number].usage[role] = usage

    def _print(self, text: str) -> None:
        self._console.print(_Raw(text), end="", crop=False, soft_wrap=True)


def view(runs: Sequence[FollowedRun], lines: int = 100) -> RenderableType:
    """The state of the runs: a headline each and, as far as there is room, a line per role."""
    parts: list[RenderableType] = []
    active = [followed for followed in runs if not followed.done]
    for followed in runs:
        if followed.status is None:
            continue
        parts.append(_headline(followed.status, followed.since))
        if not followed.done:
            room = max(_MIN_ROLES, lines // len(active) - 3)
            parts.append(_roles(followed, followed.status, room))
            hidden = len(followed.status.roles) - room
            if hidden > 0:
                parts.append(
                    Text(f"and {formatting.count(hidden, 'more role')}; see `callsheet status`", style="dim")
                )
            parts += _waiting(followed.status)
    return Group(*parts)


def _headline(status: Status, since: float) -> Text:
    line = Text("─── ", style="dim", no_wrap=True, overflow="ellipsis")
    line.append(status.experiment, style="bold not dim")
    line.append(f"  {status.run}  ")
    color = output.PHASE_COLORS[status.phase]
    line.append(status.phase, style=f"{_STYLES.get(color, color)} not dim")
    line.append(f"  {formatting.age(status.uptime + since)}")
    for name, address in status.exposed.items():
        line.append(f"  {name} ", style="dim")
        line.append(address or "waiting for an address", style="not dim")
    if status.reason:
        line.append(f"  {status.reason}", style="not dim")
    return line


def _waiting(status: Status) -> list[Text]:
    """Why some replicas are not ready."""
    waiting = [
        replica for replica in status.replicas if replica.reason and not replica.ready and not replica.joined
    ]
    lines = [
        Text(f"{replica.name}: {replica.reason}", style="yellow", no_wrap=True, overflow="ellipsis")
        for replica in waiting[:_MAX_WAITING]
    ]
    if len(waiting) > _MAX_WAITING:
        lines.append(Text(f"and {len(waiting) - _MAX_WAITING} more are not ready", style="yellow"))
    return lines


def _roles(followed: FollowedRun, status: Status, room: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True, header_style="dim")
    for name in ("ROLE", "READY", "RESTARTS", "CPU", "MEM", "UPTIME"):
        table.add_column(name, no_wrap=True, justify="left" if name == "ROLE" else "right")
    # One column for both: a narrow screen cuts the line, which scrolls by above anyway, and not the metrics.
    last = "METRICS, LAST LINE" if followed.metrics else "LAST LINE"
    table.add_column(last, no_wrap=True, overflow="ellipsis", ratio=1)
    for role in status.roles[:room]:
        replicas = [replica for replica in status.replicas if replica.role == role.name]
        table.add_row(*_row(followed, role, replicas))
    return table


def _row(followed: FollowedRun, role: RoleStatus, replicas: Iterable[ReplicaStatus]) -> list[RenderableType]:
    running = [replica for replica in replicas if replica.uptime]
    usage = followed.usage.get(role.name)
    oldest = max((replica.uptime for replica in running), default=None)
    return [
        Text(role.name, style=followed.prefixes.color(role.name)),
        _ready(role),
        Text(str(role.restarts), style="yellow" if role.restarts else ""),
        f"{usage.cpu:.1f}" if usage else "-",
        formatting.size(usage.memory) if usage else "-",
        formatting.age(oldest + followed.since) if oldest is not None else "-",
        _metrics_and_last_line(followed, role),
    ]


def _ready(role: RoleStatus) -> Text:
    text = Text(f"{role.ready}/{role.wanted}", style="green" if role.ready >= role.wanted else "yellow")
    if role.succeeded:
        text = Text(f"{role.succeeded} done, ", style="green") + text
    if role.failed:
        text = Text(f"{role.failed} failed, ", style="red") + text
    return text


def _metrics_and_last_line(followed: FollowedRun, role: RoleStatus) -> Text:
    metrics = followed.metrics.get(role.name)
    cell = Text(f"{role_metrics.text(metrics)}  " if metrics else "")
    line = followed.last.get(role.name)
    if line is not None:
        text = " ".join(formatting.clean(line.text, colors=False).split())
        cell.append(f"{line.index}: {text}" if role.wanted > 1 else text, style="dim")
    return cell
