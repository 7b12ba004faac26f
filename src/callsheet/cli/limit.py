"""So many lines a second and no more: a container that floods its log must not drown the others on the screen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LINES_PER_SECOND = 1000


class Limiter:
    """Decides, container by container, which lines are shown, and counts the rest."""

    def __init__(self, rate: int = LINES_PER_SECOND, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._window: dict[str, tuple[int, int]] = {}
        self._skipped: dict[str, int] = {}
        self._lock = threading.Lock()

    def admits(self, name: str) -> bool:
        """Whether one more line of that container is shown in this second."""
        second = int(self._clock())
        then, used = self._window.get(name, (second, 0))
        if then != second:
            used = 0
        if used >= self._rate:
            with self._lock:
                self._skipped[name] = self._skipped.get(name, 0) + 1
            return False
        self._window[name] = (second, used + 1)
        return True

    def take_skipped(self) -> dict[str, int]:
        """How many lines of which container were left out since the last call."""
        with self._lock:
            skipped, self._skipped = self._skipped, {}
        return skipped
