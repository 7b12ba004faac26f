"""What a signal means to runs in the foreground: Ctrl-C once stops them gracefully, twice kills them.

Runs that outlive this program go on instead: we only leave.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from callsheet import contract
from callsheet.backends.base import Run
from callsheet.cli import words
from callsheet.cli.news import Event
from callsheet.cli.screens import Screen
from callsheet.errors import CallsheetError

_SIGNALS = {
    signal.SIGINT: ("stopped with Ctrl-C", contract.EXIT_INTERRUPTED),
    signal.SIGTERM: ("`callsheet run` received SIGTERM", contract.EXIT_STOPPED),
    signal.SIGHUP: ("its terminal was closed", contract.EXIT_STOPPED),
}
_PIPE = ("nobody read its output any more", contract.EXIT_STOPPED)


class _Signals:
    """Collects signals, to act on them where it is safe to print and to wait for an answer."""

    def __init__(self) -> None:
        self._came: list[signal.Signals] = []
        self.left: int | None = None
        """Exit code of one who left while the runs go on."""

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Take the signals over until the block ends; one that is ignored (nohup) stays ignored."""
        taken = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, self._note) for number in taken}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(signal.Signals(number))


class Leaving(_Signals):
    """For runs that go on without us: whatever signal comes, we leave."""

    def lost(self, error: OSError) -> None:
        """Leave because what we print goes nowhere."""
        self.left = contract.EXIT_STOPPED

    def act(self, screen: Screen) -> None:
        """Leave when a signal came."""
        if self._came and self.left is None:
            self.left = _SIGNALS[self._came[0]][1]


class Stopping(_Signals):
    """For runs that end with us."""

    def __init__(self, runs: Sequence[Run], grace: float) -> None:
        super().__init__()
        self._runs = runs
        self._grace = grace
        self._asked = self._killed = False

    def lost(self, error: OSError) -> None:
        """Stop the runs because what we print goes nowhere."""
        self._ask(_PIPE if isinstance(error, BrokenPipeError) else _SIGNALS[signal.SIGHUP])

    def _ask(self, why: tuple[str, int]) -> None:
        """Stop the runs gracefully, once."""
        if not self._asked:
            self._asked = True
            self._stop(*why)

    def act(self, screen: Screen) -> None:
        """Do what the signals that came ask for."""
        while self._came:
            number = self._came.pop(0)
            if not self._asked:
                self._ask(_SIGNALS[number])
                grace = f"up to {words.age(self._grace)}" if self._grace else "at once"
                screen.event(None, Event(f"stopping, {grace}; Ctrl-C again kills", "yellow"))
            elif number == signal.SIGINT and not self._killed:
                self._killed = True
                self._stop(*_SIGNALS[number], kill=True)
                screen.event(None, Event("killing", "red"))

    def _stop(self, reason: str, code: int, *, kill: bool = False) -> None:
        for run in self._runs:
            try:
                run.stop(kill=kill, reason=reason, code=code)
            except CallsheetError:
                # It has ended meanwhile, or its supervisor is gone: following it tells which.
                continue
