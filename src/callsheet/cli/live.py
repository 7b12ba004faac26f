"""The live view: a few lines at the bottom that say how the roles do, log lines scrolling above them."""

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
from callsheet.cli import numbers, output, words
from callsheet.cli.news import Event
from callsheet.cli.screens import Shown
from callsheet.cli.usage import Sampler

_SAMPLE = 1.0
_WAITING_SHOWN = 3
_FEWEST_ROLES = 3
_STYLES = {"error": "bold red"}


class _Raw:
    """Text that is already fit for the terminal; rich would take milliseconds a line to find that out."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Segment(self._text)


class LiveScreen:
    """Everything on stdout, which is the same terminal as stderr."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, markup=False, emoji=False)
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._sampler = Sampler()
        self._sampled = 0.0
        self._numbers = numbers.Numbers()
        self._live.start()

    def lines(self, lines: Sequence[tuple[Shown, LogLine]]) -> None:
        colors = not self._console.no_color
        self._print(
            "".join(
                f"{shown.prefixes.of(line)}{words.clean(line.text, colors=colors)}\n" for shown, line in lines
            )
        )

    def event(self, shown: Shown | None, event: Event) -> None:
        who = "" if shown is None or shown.alone else f"{shown.run.experiment}: "
        self._print(output.paint(f"● {who}{event.text}", event.style) + "\n")

    def refresh(self, runs: Sequence[Shown]) -> None:
        self._numbers.follow(runs)
        if time.monotonic() >= self._sampled + _SAMPLE:
            self._sampled = time.monotonic()
            self._sample(runs)
        # Room for the ^C that a terminal echoes: wrapped, it would push the view up by a line.
        shown = Constrain(view(runs, self._console.height // 2), self._console.width - len("^C^C"))
        self._live.update(shown, refresh=True)

    def close(self) -> None:
        # The view would stay as it was in the middle of the run; the summary that follows says how it ended.
        self._numbers.close()
        self._live.update(Text(""))
        self._live.transient = True
        self._live.stop()

    def _sample(self, runs: Sequence[Shown]) -> None:
        """Ask the system once for all roles of all runs."""
        pids: dict[tuple[int, str], list[int]] = {}
        for number, shown in enumerate(runs):
            for replica in shown.status.replicas if shown.status else ():
                pids.setdefault((number, replica.role), []).extend(c.pid for c in replica.containers if c.pid)
        for shown in runs:
            shown.usage = {}
        for (number, role), usage in self._sampler.sample(pids).items():
            runs[number].usage[role] = usage

    def _print(self, text: str) -> None:
        self._console.print(_Raw(text), end="", crop=False, soft_wrap=True)


def view(runs: Sequence[Shown], lines: int = 100) -> RenderableType:
    """The state of the runs: a headline each and, as far as the lines go, a line for each role."""
    parts: list[RenderableType] = []
    active = [shown for shown in runs if not shown.done]
    for shown in runs:
        if shown.status is None:
            continue
        parts.append(_headline(shown.status, shown.since))
        if not shown.done:
            room = max(_FEWEST_ROLES, lines // len(active) - 3)
            parts.append(_roles(shown, shown.status, room))
            hidden = len(shown.status.roles) - room
            if hidden > 0:
                parts.append(
                    Text(f"and {words.count(hidden, 'more role')}, see `callsheet status`", style="dim")
                )
            parts += _waiting(shown.status)
    return Group(*parts)


def _headline(status: Status, since: float) -> Text:
    line = Text("─── ", style="dim", no_wrap=True, overflow="ellipsis")
    line.append(status.experiment, style="bold not dim")
    line.append(f"  {status.run}  ")
    color = output.PHASE_COLORS[status.phase]
    line.append(status.phase, style=f"{_STYLES.get(color, color)} not dim")
    line.append(f"  {words.age(status.uptime + since)}")
    for name, address in status.exposed.items():
        line.append(f"  {name} ", style="dim")
        line.append(words.address(address), style="not dim")
    if status.reason:
        line.append(f"  {status.reason}", style="not dim")
    return line


def _waiting(status: Status) -> list[Text]:
    """Why some replicas are not ready: nothing waits in silence."""
    waiting = [
        replica for replica in status.replicas if replica.reason and not replica.ready and not replica.joined
    ]
    lines = [
        Text(f"{replica.name}: {replica.reason}", style="yellow", no_wrap=True, overflow="ellipsis")
        for replica in waiting[:_WAITING_SHOWN]
    ]
    if len(waiting) > _WAITING_SHOWN:
        lines.append(Text(f"and {len(waiting) - _WAITING_SHOWN} more are not ready", style="yellow"))
    return lines


def _roles(shown: Shown, status: Status, room: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True, header_style="dim")
    for name in ("ROLE", "READY", "RESTARTS", "CPU", "MEM", "UPTIME"):
        table.add_column(name, no_wrap=True, justify="left" if name == "ROLE" else "right")
    # One column for both: a narrow screen cuts the line, which scrolls by above, and not the numbers.
    last = "METRICS, LAST LINE" if shown.numbers else "LAST LINE"
    table.add_column(last, no_wrap=True, overflow="ellipsis", ratio=1)
    for role in status.roles[:room]:
        replicas = [replica for replica in status.replicas if replica.role == role.name]
        table.add_row(*_row(shown, role, replicas))
    return table


def _row(shown: Shown, role: RoleStatus, replicas: Iterable[ReplicaStatus]) -> list[RenderableType]:
    running = [replica for replica in replicas if replica.uptime]
    usage = shown.usage.get(role.name)
    oldest = max((replica.uptime for replica in running), default=None)
    return [
        Text(role.name, style=shown.prefixes.color(role.name)),
        _ready(role),
        Text(str(role.restarts), style="yellow" if role.restarts else ""),
        f"{usage.cpu:.1f}" if usage else "-",
        words.size(usage.memory) if usage else "-",
        words.age(oldest + shown.since) if oldest is not None else "-",
        _metrics_and_last_line(shown, role),
    ]


def _ready(role: RoleStatus) -> Text:
    text = Text(f"{role.ready}/{role.wanted}", style="green" if role.ready >= role.wanted else "yellow")
    if role.succeeded:
        text = Text(f"{role.succeeded} done, ", style="green") + text
    if role.failed:
        text = Text(f"{role.failed} failed, ", style="red") + text
    return text


def _metrics_and_last_line(shown: Shown, role: RoleStatus) -> Text:
    found = shown.numbers.get(role.name)
    cell = Text(f"{numbers.text(found)}  " if found else "")
    line = shown.last.get(role.name)
    if line is not None:
        text = " ".join(words.clean(line.text, colors=False).split())
        cell.append(f"{line.index}: {text}" if role.wanted > 1 else text, style="dim")
    return cell
