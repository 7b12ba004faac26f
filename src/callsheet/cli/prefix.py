"""Who wrote a line: `role/index` before the text, in the same color for a role throughout a run."""

from __future__ import annotations

import sys

from callsheet.backends.base import LogLine, Status
from callsheet.backends.pieces import LogPiece
from callsheet.cli import output

_WIDEST = 24


class Prefixes:
    """The prefixes of one run's lines; on a terminal they are colored, and as wide as the widest so far."""

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

    def name(self, line: LogLine | LogPiece) -> str:
        """``role/index``, and the container where the role is a group."""
        inside = "" if line.container in ("", line.role) else f"/{line.container}"
        return f"{self._experiment}{line.role}/{line.index}{inside}"

    def of(self, line: LogLine | LogPiece) -> str:
        """What stands before the text of each line."""
        name = self.name(line)
        if not self._terminal:
            return f"{name} | "
        self._width = min(_WIDEST, max(self._width, len(name)))
        return output.paint(f"{name.ljust(self._width)} │ ", self.color(line.role))


def _color(number: int) -> str:
    return output.ROLE_COLORS[number % len(output.ROLE_COLORS)]
