"""What a signal does to runs in the foreground: the first Ctrl-C stops them gracefully, the second kills them.

Runs that outlive this program keep running instead: we only detach.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from callsheet import contract
from callsheet.backends.base import Run
from callsheet.cli import formatting
from callsheet.cli.follow.changes import Message
from callsheet.cli.follow.screen import Screen
from callsheet.errors import CallsheetError

_SIGNALS = {
    signal.SIGINT: ("stopped with Ctrl-C", contract.EXIT_INTERRUPTED),
    signal.SIGTERM: ("`callsheet run` received SIGTERM", contract.EXIT_STOPPED),
    signal.SIGHUP: ("its terminal was closed", contract.EXIT_STOPPED),
}
_BROKEN_PIPE = ("the program that read its output has exited", contract.EXIT_STOPPED)


class _SignalHandler:
    """Queues signals, to act on them where it is safe to print and to wait."""

    def __init__(self) -> None:
        self._received: list[signal.Signals] = []
        self.detached: int | None = None
        """Our exit code once we have detached; None until then."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle the signals until the block ends; one that is ignored (nohup) stays ignored."""
        handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        previous = {number: signal.signal(number, self._receive) for number in handled}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(signal.Signals(number))


class DetachOnSignal(_SignalHandler):
    """For runs that outlive this program."""

    def output_lost(self, error: OSError) -> None:
        """Detach because nobody sees what we print."""
        self.detached = contract.EXIT_STOPPED

    def handle(self, screen: Screen) -> None:
        """Detach if a signal was received."""
        if self._received and self.detached is None:
            self.detached = _SIGNALS[self._received[0]][1]


class StopOnSignal(_SignalHandler):
    """For runs that end with this program."""

    def __init__(self, runs: Sequence[Run], grace: float) -> None:
        super().__init__()
        self._runs = runs
        self._grace = grace
        self._stopping = self._killing = False

    def output_lost(self, error: OSError) -> None:
        """Stop the runs because nobody sees what we print."""
        self._stop_once(_BROKEN_PIPE if isinstance(error, BrokenPipeError) else _SIGNALS[signal.SIGHUP])

    def _stop_once(self, cause: tuple[str, int]) -> None:
        if not self._stopping:
            self._stopping = True
            self._stop(*cause)

    def handle(self, screen: Screen) -> None:
        """Act on the signals received."""
        while self._received:
            number = self._received.pop(0)
            if not self._stopping:
                self._stop_once(_SIGNALS[number])
                limit = f" (up to {formatting.age(self._grace)})" if self._grace else ""
                screen.message(None, Message(f"stopping{limit}; press Ctrl-C again to kill", "yellow"))
            elif number == signal.SIGINT and not self._killing:
                self._killing = True
                self._stop(*_SIGNALS[number], kill=True)
                screen.message(None, Message("killing", "red"))

    def _stop(self, reason: str, code: int, *, kill: bool = False) -> None:
        for run in self._runs:
            try:
                run.stop(kill=kill, reason=reason, code=code)
            except CallsheetError:
                continue  # It has just ended, or its supervisor is gone; following it shows which.
