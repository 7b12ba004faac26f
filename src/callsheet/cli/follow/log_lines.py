"""How log lines reach the terminal: with a `role/index` prefix, colored by role, and at a limited rate."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from callsheet.backends.base import LogLine, Status
from callsheet.backends.log_chunks import LogChunk
from callsheet.cli import output

LINES_PER_SECOND = 1000
"""Of one container: a container that floods its log must not drown the others."""
_MAX_WIDTH = 24


class Prefixes:
    """The prefixes of one run's lines. On a terminal they are colored and padded to the widest so far."""

    def __init__(self, status: Status, *, alone: bool = True) -> None:
        self._colors = {role.name: _color(number) for number, role in enumerate(status.roles)}
        self._experiment = "" if alone else f"{status.experiment}/"
        self._terminal = output.is_terminal(sys.stdout)
        self._width = 0
        for replica in status.replicas:
            for container in replica.containers:
                self.of(LogLine(replica.role, replica.index, container.name, ""))

    def color(self, role: str) -> str:
        """The role's color."""
        return self._colors.setdefault(role, _color(len(self._colors)))

    def name(self, line: LogLine | LogChunk) -> str:
        """``role/index``, plus the container if the role is a group."""
        suffix = "" if line.container in ("", line.role) else f"/{line.container}"
        return f"{self._experiment}{line.role}/{line.index}{suffix}"

    def of(self, line: LogLine | LogChunk) -> str:
        """The prefix of this line."""
        name = self.name(line)
        if not self._terminal:
            return f"{name} | "
        self._width = min(_MAX_WIDTH, max(self._width, len(name)))
        return output.paint(f"{name.ljust(self._width)} │ ", self.color(line.role))


def _color(number: int) -> str:
    return output.ROLE_COLORS[number % len(output.ROLE_COLORS)]


class RateLimiter:
    """Decides, per container, which lines are shown, and counts the rest."""

    def __init__(self, rate: int = LINES_PER_SECOND, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._window: dict[str, tuple[int, int]] = {}
        self._skipped: dict[str, int] = {}
        self._lock = threading.Lock()

    def allows(self, name: str) -> bool:
        """Whether that container may show one more line in this second."""
        second = int(self._clock())
        current, used = self._window.get(name, (second, 0))
        if current != second:
            used = 0
        if used >= self._rate:
            with self._lock:
                self._skipped[name] = self._skipped.get(name, 0) + 1
            return False
        self._window[name] = (second, used + 1)
        return True

    def take_skipped(self) -> dict[str, int]:
        """How many lines of each container were skipped since the last call."""
        with self._lock:
            skipped, self._skipped = self._skipped, {}
        return skipped
