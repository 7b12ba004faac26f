"""The loop that follows runs: it shows their log lines and changes until they end or the user detaches.

Two threads read each run, one its log and one its status, into a queue. Only the main thread prints and decides. The
queue is bounded: a slow terminal slows the readers, never the run.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

from callsheet.backends.base import LogLine, LogQuery, Run, Status
from callsheet.cli import formatting
from callsheet.cli.follow.changes import Message, describe_changes
from callsheet.cli.follow.log_lines import Prefixes, RateLimiter
from callsheet.cli.follow.screen import FollowedRun, NoScreen, Screen
from callsheet.cli.follow.signals import DetachOnSignal, StopOnSignal

_TICK = 0.1
_REFRESH = 0.5
_REPORT_SKIPPED = 5.0
_DRAIN = 3.0
"""Seconds to wait for the rest of the log after the runs have ended."""
_BATCH = 5000

_Item = tuple[FollowedRun, LogLine | Status | Exception | None]
"""What a reader puts into the queue; last None, or the error that ended it."""


class Follower:
    """Shows runs on a screen until they end."""

    def __init__(
        self, runs: Sequence[Run], screen: Screen, *, grace: float = 0.0, tail: int | None = None
    ) -> None:
        self._runs = [_follow(run, alone=len(runs) == 1) for run in runs]
        self._screen = screen
        detach = all(run.outlives_us for run in runs)
        self._signals = DetachOnSignal() if detach else StopOnSignal(runs, grace)
        self._tail = tail
        self._queue: queue.Queue[_Item] = queue.Queue(maxsize=20_000)
        self._readers = 0
        self._limiter = RateLimiter()
        self._refreshed = 0.0
        self._reported = time.monotonic()
        self._error: Exception | None = None
        self.output_lost = False
        """Whether the terminal, or the program that read our output, is gone."""

    def follow(self) -> list[Status]:
        """Show the runs until all have ended; how they ended."""
        for followed in self._runs:
            for read in (self._read_log, self._read_state):
                self._readers += 1
                threading.Thread(target=read, args=(followed,), daemon=True).start()
        with self._signals.installed():
            self._loop()
        self._attempt(lambda: self._report_skipped(now=True))
        self._attempt(self._screen.close)
        if self._error is not None:
            raise self._error
        return [followed.status for followed in self._runs if followed.status is not None]

    @property
    def detached(self) -> int | None:
        """Our exit code if we detached while the runs keep running; None if they have ended."""
        return self._signals.detached

    def _loop(self) -> None:
        ended = 0.0
        while self._readers and self._error is None:
            self._attempt(lambda: self._signals.handle(self._screen))
            if self.detached is not None:
                return
            items = self._take()
            self._attempt(lambda items=items: self._handle(items))  # type: ignore[misc]
            self._attempt(self._repaint)
            if all(followed.done for followed in self._runs):
                ended = ended or time.monotonic()
                if time.monotonic() > ended + _DRAIN:
                    return

    def _take(self) -> list[_Item]:
        """What the readers have sent, after a short wait for the first item."""
        items: list[_Item] = []
        try:
            items.append(self._queue.get(timeout=_TICK))
            while len(items) < _BATCH:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return items

    def _handle(self, items: Sequence[_Item]) -> None:
        """Print in the order of arrival, consecutive lines in one call."""
        lines: list[tuple[FollowedRun, LogLine]] = []
        for followed, item in items:
            if isinstance(item, LogLine):
                lines.append((followed, item))
                followed.last[item.role] = item
            elif isinstance(item, Status):
                self._print(lines)
                self._on_status(followed, item)
            else:
                self._readers -= 1
                self._error = self._error or item
        self._print(lines)

    def _print(self, lines: list[tuple[FollowedRun, LogLine]]) -> None:
        if lines:
            self._screen.lines(lines)
            lines.clear()

    def _on_status(self, followed: FollowedRun, status: Status) -> None:
        before, followed.status, followed.received = followed.status, status, time.monotonic()
        for message in describe_changes(before, status):
            self._screen.message(followed, message)

    def _repaint(self) -> None:
        if time.monotonic() >= self._refreshed + _REFRESH:
            self._refreshed = time.monotonic()
            self._screen.refresh(self._runs)
        self._report_skipped()

    def _report_skipped(self, *, now: bool = False) -> None:
        if not now and time.monotonic() < self._reported + _REPORT_SKIPPED:
            return
        self._reported = time.monotonic()
        for name, number in self._limiter.take_skipped().items():
            text = f"{name}: {formatting.count(number, 'line')} not shown here; see `callsheet logs`"
            self._screen.message(None, Message(text, "yellow"))

    def _attempt(self, action: Callable[[], None]) -> None:
        """Use the screen. If it is gone, do what a closed terminal would: stop the runs, or detach."""
        try:
            action()
        except OSError as error:
            self.output_lost = True
            self._screen = NoScreen()
            self._signals.output_lost(error)

    def _read_log(self, followed: FollowedRun) -> None:
        def lines() -> None:
            for line in followed.run.logs(LogQuery(follow=True, tail=self._tail)):
                if self._limiter.allows(followed.prefixes.name(line)):
                    self._queue.put((followed, line))

        self._read(followed, lines)

    def _read_state(self, followed: FollowedRun) -> None:
        def states() -> None:
            for status in followed.run.watch():
                self._queue.put((followed, status))

        self._read(followed, states)

    def _read(self, followed: FollowedRun, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 nothing catches errors of a thread: the main one reports them
            self._queue.put((followed, error))
        else:
            self._queue.put((followed, None))


def _follow(run: Run, *, alone: bool) -> FollowedRun:
    return FollowedRun(run=run, alone=alone, prefixes=Prefixes(run.status(), alone=alone))
