"""Follow runs in the foreground: show their lines and changes until they end or the user has had enough.

Each run is read by two threads, one for its log and one for its state; they hand everything to this one, which
alone prints and decides. The queue between them is bounded: a slow terminal slows the reading, never the run.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

from callsheet.backends.base import LogLine, LogQuery, Run, Status
from callsheet.cli import words
from callsheet.cli.limit import Limiter
from callsheet.cli.news import Event, events
from callsheet.cli.prefix import Prefixes
from callsheet.cli.screens import NoScreen, Screen, Shown
from callsheet.cli.stopping import Leaving, Stopping

_TICK = 0.1
_REFRESH = 0.5
_TELL_SKIPPED = 5.0
_LAST_LINES = 3.0
"""How long to wait for the rest of the log after the runs have ended."""
_BATCH = 5000

_Item = tuple[Shown, LogLine | Status | Exception | None]
"""What a reader hands over; in the end None, or what went wrong."""


class Attachment:
    """Runs on a screen, from their start to their end."""

    def __init__(
        self, runs: Sequence[Run], screen: Screen, *, grace: float = 0.0, tail: int | None = None
    ) -> None:
        self._shown = [_show(run, alone=len(runs) == 1) for run in runs]
        self._screen = screen
        leaves = all(run.outlives_us for run in runs)
        self._stopping = Leaving() if leaves else Stopping(runs, grace)
        self._tail = tail
        self._queue: queue.Queue[_Item] = queue.Queue(maxsize=20_000)
        self._readers = 0
        self._limiter = Limiter()
        self._refreshed = 0.0
        self._told = time.monotonic()
        self._broken: Exception | None = None
        self.hung_up = False
        """Whether the terminal, or the program that read our output, has gone away."""

    def follow(self) -> list[Status]:
        """Show the runs until all have ended; how they ended."""
        for shown in self._shown:
            for read in (self._read_log, self._read_state):
                self._readers += 1
                threading.Thread(target=read, args=(shown,), daemon=True).start()
        with self._stopping.signals():
            self._loop()
        self._attempt(lambda: self._tell_skipped(at_once=True))
        self._attempt(self._screen.close)
        if self._broken is not None:
            raise self._broken
        return [shown.status for shown in self._shown if shown.status is not None]

    @property
    def left(self) -> int | None:
        """Our exit code when we left while the runs go on; None when they have ended."""
        return self._stopping.left

    def _loop(self) -> None:
        ended = 0.0
        while self._readers and self._broken is None:
            self._attempt(lambda: self._stopping.act(self._screen))
            if self.left is not None:
                return
            items = self._take()
            self._attempt(lambda items=items: self._handle(items))  # type: ignore[misc]
            self._attempt(self._repaint)
            if all(shown.done for shown in self._shown):
                ended = ended or time.monotonic()
                if time.monotonic() > ended + _LAST_LINES:
                    return

    def _take(self) -> list[_Item]:
        """What has come, after waiting a little for the first of it."""
        items: list[_Item] = []
        try:
            items.append(self._queue.get(timeout=_TICK))
            while len(items) < _BATCH:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return items

    def _handle(self, items: Sequence[_Item]) -> None:
        """Print in the order of arrival, neighboring lines in one go."""
        lines: list[tuple[Shown, LogLine]] = []
        for shown, item in items:
            if isinstance(item, LogLine):
                lines.append((shown, item))
                shown.last[item.role] = item
            elif isinstance(item, Status):
                self._print(lines)
                self._on_status(shown, item)
            else:
                self._readers -= 1
                self._broken = self._broken or item
        self._print(lines)

    def _print(self, lines: list[tuple[Shown, LogLine]]) -> None:
        if lines:
            self._screen.lines(lines)
            lines.clear()

    def _on_status(self, shown: Shown, status: Status) -> None:
        before, shown.status, shown.received = shown.status, status, time.monotonic()
        for event in events(before, status):
            self._screen.event(shown, event)

    def _repaint(self) -> None:
        if time.monotonic() >= self._refreshed + _REFRESH:
            self._refreshed = time.monotonic()
            self._screen.refresh(self._shown)
        self._tell_skipped()

    def _tell_skipped(self, *, at_once: bool = False) -> None:
        if not at_once and time.monotonic() < self._told + _TELL_SKIPPED:
            return
        self._told = time.monotonic()
        for name, number in self._limiter.take_skipped().items():
            text = f"{name}: {words.count(number, 'line')} not shown here, see `callsheet logs`"
            self._screen.event(None, Event(text, "yellow"))

    def _attempt(self, action: Callable[[], None]) -> None:
        """Do something with the screen. When it has gone away, stop the runs as a closed terminal would."""
        try:
            action()
        except OSError as error:
            self.hung_up = True
            self._screen = NoScreen()
            self._stopping.lost(error)

    def _read_log(self, shown: Shown) -> None:
        def lines() -> None:
            for line in shown.run.logs(LogQuery(follow=True, tail=self._tail)):
                if self._limiter.admits(shown.prefixes.name(line)):
                    self._queue.put((shown, line))

        self._read(shown, lines)

    def _read_state(self, shown: Shown) -> None:
        def states() -> None:
            for status in shown.run.watch():
                self._queue.put((shown, status))

        self._read(shown, states)

    def _read(self, shown: Shown, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 a thread has nobody above it: the main one reports it
            self._queue.put((shown, error))
        else:
            self._queue.put((shown, None))


def _show(run: Run, *, alone: bool) -> Shown:
    return Shown(run=run, alone=alone, prefixes=Prefixes(run.status(), alone=alone))
