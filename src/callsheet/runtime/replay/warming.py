"""Takes the memory of a table from the system a little before it is needed, beside the loop that serves clients.

The first touch of memory is slow, in virtual machines several times slower than the copy of the item itself. The
system is asked to do it for the part that comes next, in a short-lived thread, so a table takes no more memory than it
will soon use. Where the system cannot (before Linux 5.14), the first round through the table is slower, nothing else.
"""

from __future__ import annotations

import ctypes
import sys
import threading

from callsheet.runtime.replay.ring import Ring, item_bytes

AHEAD = 256 << 20
"""Bytes that are taken before they are needed, at most."""
_STEP = 256 << 10
"""Bytes in one call. Whoever asks for memory in this process waits for it, also ZeroMQ's threads; on a busy machine,
where a call may be interrupted, 4 MiB at a time kept new clients waiting for seconds."""
_PAGE = 4096
_POPULATE_WRITE = 23
"""Linux's MADV_POPULATE_WRITE: pages are there as if they had been written, and keep what is in them."""


class Warming:
    """Follows the writing of a ring on its first round."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._ahead = max(1, AHEAD // max(1, item_bytes(ring.schema)))
        self.warm = 0
        """Slots whose memory was asked for."""
        self._thread: threading.Thread | None = None
        self._possible = sys.platform == "linux"

    def reached(self, position: int) -> None:
        """Items have been written up to here."""
        if position + self._ahead // 2 < self.warm or self.warm >= self._ring.slots or not self._possible:
            return
        if self._thread is None or not self._thread.is_alive():
            start = max(self.warm, position)
            self.warm = min(self._ring.slots, max(start, self.warm) + self._ahead)
            self._thread = threading.Thread(
                target=self._take, args=(start, self.warm), name="callsheet-warming", daemon=True
            )
            self._thread.start()

    def wait(self) -> None:
        """Until what was asked for is there."""
        if self._thread is not None:
            self._thread.join()

    def _take(self, start: int, stop: int) -> None:
        advise = ctypes.CDLL(None).madvise  # called without the interpreter's lock
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for array in self._ring.arrays.values():
            size = array.strides[0]
            begin = -(-(array.ctypes.data + start * size) // _PAGE) * _PAGE
            end = (array.ctypes.data + stop * size) // _PAGE * _PAGE
            for at in range(begin, end, _STEP):
                if advise(at, min(_STEP, end - at), _POPULATE_WRITE) != 0:
                    self._possible = False
                    return
