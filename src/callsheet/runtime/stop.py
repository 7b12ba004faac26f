"""The wish to stop, as something that every wait of the process takes part in."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from types import FrameType
from typing import Any

from callsheet.errors import CallsheetError
from callsheet.runtime import limits

_LONGEST = 1e6
"""Seconds that the system waits at a time."""


class Stopping(CallsheetError):
    """The process was asked to stop while it waited. A `with Context` block ends the process on it: see `Context`."""


class Stop:
    """Set once, seen by all threads: a flag, and a descriptor that becomes readable."""

    def __init__(self) -> None:
        self.signal: int | None = None
        """The signal that set it; None when the program itself did."""
        self._event = threading.Event()
        self._before: dict[int, Any] = {}
        self._closed = False
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
        deadline = Deadline(seconds)
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        while not poll.poll(deadline.left(_LONGEST) * 1000) and not deadline.passed:
            pass
        self.check()

    def on_signal(self) -> None:
        """Set it on SIGTERM, and on Ctrl-C; a second one ends the process as usual. `close` puts back what was."""
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self.set()
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)

    def _put_back(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number, before in self._before.items():
            while isinstance(owner := getattr(before, "__self__", None), Stop) and owner._closed:
                before = owner._before[number]
            if signal.getsignal(number) == self._handle:
                signal.signal(number, before)

    def close(self) -> None:
        """Give the descriptors up, and the signals back; a second time does nothing: the numbers may be others' then."""
        if self._closed:
            return
        self._closed = True
        self._put_back()
        os.close(self.fd)
        write, self._write = self._write, -1
        os.close(write)


class Deadline:
    """When a wait must end."""

    __slots__ = ("at",)

    def __init__(self, timeout: float | None) -> None:
        if timeout is None:
            self.at = None
            return
        if not (type(timeout) is float and timeout >= 0):
            limits.seconds("timeout", timeout)
        self.at = time.monotonic() + timeout

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return self.at is not None and time.monotonic() >= self.at

    @property
    def timeout(self) -> float | None:
        """What is left of it for a call that is made now."""
        return None if self.at is None else self.left()

    def left(self, most: float = 3600.0) -> float:
        """Seconds that are left, at most so many."""
        return most if self.at is None else min(most, max(0.0, self.at - time.monotonic()))
