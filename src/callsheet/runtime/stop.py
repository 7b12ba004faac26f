"""The wish to stop, as something that every wait of the process takes part in."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from types import FrameType

from callsheet.errors import CallsheetError


class Stopping(CallsheetError):
    """The process was asked to stop while it waited. `with Context.from_env()` ends quietly on it."""


class Stop:
    """Set once, seen by all threads: a flag, and a descriptor that becomes readable."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.fd, self._write = os.pipe()
        os.set_blocking(self._write, False)

    @property
    def wanted(self) -> bool:
        """Whether it was set."""
        return self._event.is_set()

    def set(self) -> None:
        """Ask all waits to end; safe in a signal handler."""
        if not self._event.is_set():
            self._event.set()
            with contextlib.suppress(OSError):
                os.write(self._write, b"x")

    def check(self) -> None:
        """Raise when it was set."""
        if self._event.is_set():
            raise Stopping("the process was asked to stop")

    def sleep(self, seconds: float) -> None:
        """Sleep, but no longer than until the stop."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        self.check()

    def on_signal(self) -> None:
        """Set it on SIGTERM, and on Ctrl-C; a second one ends the process as usual."""

        def handle(number: int, frame: FrameType | None) -> None:
            self.set()
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)

        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handle)

    def close(self) -> None:
        """Give the descriptors up."""
        os.close(self.fd)
        os.close(self._write)


class Deadline:
    """When a wait must end."""

    __slots__ = ("at",)

    def __init__(self, timeout: float | None) -> None:
        self.at = None if timeout is None else time.monotonic() + timeout

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return self.at is not None and time.monotonic() >= self.at

    def left(self, most: float = 3600.0) -> float:
        """Seconds that are left, at most so many."""
        return most if self.at is None else min(most, max(0.0, self.at - time.monotonic()))
