"""A thread that looks after what a sender's last call left behind: a frame half full, a connection that broke.

Without it an item would wait for the next call, which may come late or never. It sleeps a millisecond while there is
something to look after, and longer otherwise; the calls themselves do all the work that they can do.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from callsheet.runtime.stop import Stopping

_TICK = 0.001
_IDLE_WAIT = 0.25
_IDLE_AFTER = 20
"""Ticks with nothing to do after which it rests."""


class Flushable(Protocol):
    """What is looked after."""

    def flush_due(self) -> bool:
        """Do what is due; whether something will be due soon."""

    def urgent(self) -> bool:
        """Whether something waits that should not wait long."""

    def on_flush_error(self, error: Exception) -> None:
        """It cannot be looked after any more."""


class BackgroundFlusher:
    """Started by the first `wake`."""

    def __init__(self, target: Flushable) -> None:
        self.idle = True
        """Whether it must be woken."""
        self._target = target
        self._event = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There is something to look after."""
        self.idle = False
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
        self.idle = False
        idle_ticks = 0
        try:
            while not self._ended:
                idle_ticks = 0 if self._target.flush_due() else idle_ticks + 1
                if idle_ticks < _IDLE_AFTER:
                    time.sleep(_TICK)
                    continue
                self.idle = True
                woken = self._target.urgent()  # a call may have just missed that it rests
                woken = woken or self._event.wait(_IDLE_WAIT)
                self._event.clear()
                self.idle = False
                idle_ticks = 0 if woken else _IDLE_AFTER - 1
        except Stopping:
            pass  # whoever closes the sender hands over what is left
        except Exception as error:  # noqa: BLE001 - told to the next call
            self._target.on_flush_error(error)
        self.idle = False
