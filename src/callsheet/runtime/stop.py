"""The request to stop, which interrupts every wait of the process."""

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

_MAX_WAIT = 1e6
"""The longest single wait, in seconds."""


class Stopping(CallsheetError):
    """The process was asked to stop while it waited. A `with Context` block ends the process on it: see `Context`."""


class Stop:
    """A flag that is set once and seen by all threads, and a descriptor that becomes readable with it."""

    def __init__(self) -> None:
        self.signal: int | None = None
        """The signal that set it; None when the program itself did."""
        self._event = threading.Event()
        self._old_handlers: dict[int, Any] = {}
        self._closed = False
        self.fd, self._write = os.pipe()
        os.set_blocking(self._write, False)

    @property
    def wanted(self) -> bool:
        """Whether it is set."""
        return self._event.is_set()

    def set(self) -> None:
        """Interrupt all waits; safe in a signal handler."""
        if not self._event.is_set():
            self._event.set()
            with contextlib.suppress(OSError):
                os.write(self._write, b"x")

    def check(self) -> None:
        """Raise `Stopping` if it is set."""
        if self._event.is_set():
            raise Stopping("the process was asked to stop")

    def sleep(self, seconds: float) -> None:
        """Sleep until the time is up or it is set."""
        deadline = Deadline(seconds)
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        while not poll.poll(deadline.left(_MAX_WAIT) * 1000) and not deadline.passed:
            pass
        self.check()

    def install_handlers(self) -> None:
        """Set it on SIGTERM and Ctrl-C; a second signal ends the process as usual. `close` restores the old handlers."""
        for number in (signal.SIGTERM, signal.SIGINT):
            old_handler = signal.getsignal(number)
            if old_handler is not signal.SIG_IGN:
                self._old_handlers[number] = old_handler
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self.set()
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)

    def _restore_handlers(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number, old_handler in self._old_handlers.items():
            while isinstance(owner := getattr(old_handler, "__self__", None), Stop) and owner._closed:
                old_handler = owner._old_handlers[number]
            if signal.getsignal(number) == self._handle:
                signal.signal(number, old_handler)

    def close(self) -> None:
        """Close the descriptors and restore the signal handlers. Closing twice is safe: the numbers may be reused."""
        if self._closed:
            return
        self._closed = True
        self._restore_handlers()
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
        """Whether the time is up."""
        return self.at is not None and time.monotonic() >= self.at

    @property
    def timeout(self) -> float | None:
        """The remaining time, as the timeout of another call."""
        return None if self.at is None else self.left()

    def left(self, most: float = 3600.0) -> float:
        """Remaining seconds, at most `most`."""
        return most if self.at is None else min(most, max(0.0, self.at - time.monotonic()))
