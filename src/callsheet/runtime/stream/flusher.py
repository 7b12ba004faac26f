"""A background thread that finishes what a sender's last call left: a partly filled frame, a broken connection.

Without it an item would wait for the next call, which may come late or never. The thread ticks every millisecond while
there is something to do and sleeps longer otherwise; calls do as much as they can on their own.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from callsheet.runtime.stop import Stopping

if TYPE_CHECKING:
    from callsheet.runtime.stream.sender import StreamSender

_TICK = 0.001
_IDLE_WAIT = 0.25
_IDLE_AFTER = 20
"""Ticks without work after which the thread goes idle."""


class BackgroundFlusher:
    """Starts with the first `wake`."""

    def __init__(self, sender: StreamSender) -> None:
        self.idle = True
        """Whether it must be woken up."""
        self._sender = sender
        self._event = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """There is something to do."""
        self.idle = False
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._run, name="callsheet-flusher", daemon=True)
            self._thread.start()
        self._event.set()

    def stop(self) -> None:
        """End the thread."""
        self._ended = True
        self._event.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)

    def _run(self) -> None:
        self.idle = False
        idle_ticks = 0
        try:
            while not self._ended:
                idle_ticks = 0 if self._sender.flush_due() else idle_ticks + 1
                if idle_ticks < _IDLE_AFTER:
                    time.sleep(_TICK)
                    continue
                self.idle = True
                woken = self._sender.filling  # a call may have just missed that it is idle
                woken = woken or self._event.wait(_IDLE_WAIT)
                self._event.clear()
                self.idle = False
                idle_ticks = 0 if woken else _IDLE_AFTER - 1
        except Stopping:
            pass  # closing the sender delivers what is left
        except Exception as error:  # noqa: BLE001 - raised by the next call
            self._sender.on_flush_error(error)
        self.idle = False
