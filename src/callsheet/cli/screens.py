"""Two ways to show attached runs: plain lines for pipes and files, a live view for a terminal.

Both take the same calls, so that the code which follows a run does not know who looks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TextIO

from callsheet.backends.base import LogLine, Run, Status
from callsheet.cli import output
from callsheet.cli.news import Event
from callsheet.cli.prefix import Prefixes
from callsheet.cli.usage import Usage
from callsheet.cli.words import clean

if TYPE_CHECKING:
    from callsheet.metrics.reading import Shown as Number


@dataclass(slots=True)
class Shown:
    """One attached run and what is known of it."""

    run: Run
    prefixes: Prefixes
    alone: bool = True
    """Whether it is the only run on the screen."""
    status: Status | None = None
    received: float = 0.0
    """When the status came, on the monotonic clock."""
    last: dict[str, LogLine] = field(default_factory=dict)
    """The newest line of each role."""
    usage: dict[str, Usage] = field(default_factory=dict)
    """Processor and memory of each role."""
    numbers: dict[str, list[Number]] = field(default_factory=dict)
    """What the role's own metrics say."""

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self.status is not None and self.status.done

    @property
    def since(self) -> float:
        """Seconds since the status came: clocks go on between two of them."""
        return 0.0 if self.done else time.monotonic() - self.received


class Screen(Protocol):
    """Where attached runs are shown."""

    def lines(self, lines: Sequence[tuple[Shown, LogLine]]) -> None:
        """Print log lines."""

    def event(self, shown: Shown | None, event: Event) -> None:
        """Print a sentence about a run, or about all."""

    def refresh(self, runs: Sequence[Shown]) -> None:
        """Show the state of the runs."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class PlainScreen:
    """Log lines on one stream, sentences on stderr, nothing that moves."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def lines(self, lines: Sequence[tuple[Shown, LogLine]]) -> None:
        colors = output.has_color(self._stream)
        self._stream.write(
            "".join(f"{shown.prefixes.of(line)}{clean(line.text, colors=colors)}\n" for shown, line in lines)
        )
        self._stream.flush()

    def event(self, shown: Shown | None, event: Event) -> None:
        output.say(f"{_subject(shown)}{event.text}", event.style)

    def refresh(self, runs: Sequence[Shown]) -> None:
        """Plain lines have no state to show."""

    def close(self) -> None:
        sys.stderr.flush()


class NoScreen:
    """For a terminal that has gone away while the runs are being stopped."""

    def lines(self, lines: Sequence[tuple[Shown, LogLine]]) -> None:
        """Nobody looks."""

    def event(self, shown: Shown | None, event: Event) -> None:
        """Nobody looks."""

    def refresh(self, runs: Sequence[Shown]) -> None:
        """Nobody looks."""

    def close(self) -> None:
        """Nothing to restore."""


def _subject(shown: Shown | None) -> str:
    return "callsheet: " if shown is None or shown.alone else f"callsheet: {shown.run.experiment}: "


def choose(form: str | None) -> Screen:
    """The live view when a person looks at both streams; when stdout holds a structured answer, lines go to stderr."""
    if form:
        return PlainScreen(sys.stderr)
    if output.is_terminal(sys.stdout) and output.is_terminal(sys.stderr):
        from callsheet.cli.live import LiveScreen

        return LiveScreen()
    return PlainScreen(sys.stdout)
