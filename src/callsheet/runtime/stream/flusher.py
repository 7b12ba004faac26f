"""A thread that looks after what a sender's last call left behind: a frame half full, a connection that broke.

Without it an item would wait for the next call, which may come late or never. It sleeps a millisecond while there is
something to look after, and longer otherwise; the calls themselves do all the work that they can do.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from callsheet.runtime.stop import Stopping

TICK = 0.001
_REST = 0.25
_QUIET = 20
"""Ticks with nothing to do after which it rests."""


class Tended(Protocol):
    """What is looked after."""

    def tend(self) -> bool:
        """Do what is due; whether something will be due soon."""

    def urgent(self) -> bool:
        """Whether something waits that should not wait long."""

    def fail(self, error: Exception) -> None:
        """It cannot be looked after any more."""


class Flusher:
    """Started by the first `wake`."""

    def __init__(self, tended: Tended) -> None:
        self.resting = True
        """Whether it must be woken."""
        self._tended = tended
        self._event = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There is something to look after."""
        self.resting = False
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._run, name="callsheet-flusher", daemon=True)
            self._thread.start()
        self._event.set()

    def stop(self) -> None:
        """End it."""
        self._ended = True
        self._event.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)

    def _run(self) -> None:
        self.resting = False
        quiet = 0
        try:
            while not self._ended:
                quiet = 0 if self._tended.tend() else quiet + 1
                if quiet < _QUIET:
                    time.sleep(TICK)
                    continue
                self.resting = True
                woken = self._tended.urgent()  # a call may have just missed that it rests
                woken = woken or self._event.wait(_REST)
                self._event.clear()
                self.resting = False
                quiet = 0 if woken else _QUIET - 1
        except Stopping:
            pass  # whoever closes the sender hands over what is left
        except Exception as error:  # noqa: BLE001 - told to the next call
            self._tended.fail(error)
        self.resting = False
