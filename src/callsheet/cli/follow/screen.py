"""Where followed runs are shown: plain lines for pipes and files, a live view for a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TextIO

from callsheet.backends.base import LogLine, Run, Status
from callsheet.cli import output
from callsheet.cli.follow.changes import Message
from callsheet.cli.follow.log_lines import Prefixes
from callsheet.cli.follow.usage import Usage
from callsheet.cli.formatting import clean

if TYPE_CHECKING:
    from callsheet.metrics.reader import ShownMetric as Metric


@dataclass(slots=True)
class FollowedRun:
    """One run and what its screen shows of it."""

    run: Run
    prefixes: Prefixes
    alone: bool = True
    """Whether no other run is on the screen."""
    status: Status | None = None
    received: float = 0.0
    """When the status arrived, on the monotonic clock."""
    last: dict[str, LogLine] = field(default_factory=dict)
    """The newest line of each role."""
    usage: dict[str, Usage] = field(default_factory=dict)
    """CPU and memory of each role."""
    metrics: dict[str, list[Metric]] = field(default_factory=dict)
    """The metrics that each role reports itself."""

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self.status is not None and self.status.done

    @property
    def since(self) -> float:
        """Seconds since the status arrived; ages count on between two of them."""
        return 0.0 if self.done else time.monotonic() - self.received


class Screen(Protocol):
    """Shows runs."""

    def lines(self, lines: Sequence[tuple[FollowedRun, LogLine]]) -> None:
        """Print log lines."""

    def message(self, followed: FollowedRun | None, message: Message) -> None:
        """Print a message about a run, or about all of them."""

    def refresh(self, runs: Sequence[FollowedRun]) -> None:
        """Show the state of the runs."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class PlainScreen:
    """Log lines on one stream, messages on stderr, nothing redrawn."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def lines(self, lines: Sequence[tuple[FollowedRun, LogLine]]) -> None:
        colors = output.has_color(self._stream)
        self._stream.write(
            "".join(
                f"{followed.prefixes.of(line)}{clean(line.text, colors=colors)}\n" for followed, line in lines
            )
        )
        self._stream.flush()

    def message(self, followed: FollowedRun | None, message: Message) -> None:
        output.say(f"{_subject(followed)}{message.text}", message.style)

    def refresh(self, runs: Sequence[FollowedRun]) -> None:
        """Plain lines do not show the state."""

    def close(self) -> None:
        sys.stderr.flush()


class NoScreen:
    """For a terminal that is gone while the runs are being stopped."""

    def lines(self, lines: Sequence[tuple[FollowedRun, LogLine]]) -> None:
        """Nobody is watching."""

    def message(self, followed: FollowedRun | None, message: Message) -> None:
        """Nobody is watching."""

    def refresh(self, runs: Sequence[FollowedRun]) -> None:
        """Nobody is watching."""

    def close(self) -> None:
        """Nothing to restore."""


def _subject(followed: FollowedRun | None) -> str:
    if followed is None or followed.alone:
        return "callsheet: "
    return f"callsheet: {followed.run.experiment}: "


def choose_screen(form: str | None) -> Screen:
    """The live view if both streams are a terminal; if stdout takes a structured answer, lines go to stderr."""
    if form:
        return PlainScreen(sys.stderr)
    if output.is_terminal(sys.stdout) and output.is_terminal(sys.stderr):
        from callsheet.cli.follow.live_view import LiveScreen

        return LiveScreen()
    return PlainScreen(sys.stdout)
