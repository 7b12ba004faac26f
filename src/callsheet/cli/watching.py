"""`-w`: redraw in place on a terminal; elsewhere print again when something changed."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from callsheet.cli import output


class Redrawn:
    """A text that is shown again and again."""

    def __init__(self) -> None:
        self._terminal = output.is_terminal(sys.stdout)
        self._key: Any = None

    def __enter__(self) -> Redrawn:
        if self._terminal:
            # The alternate screen: what was on the screen before comes back at the end.
            sys.stdout.write("\x1b[?1049h\x1b[?25l")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal:
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()

    def show(self, text: str, *, key: Any) -> None:
        """Show the text now; where it cannot be redrawn, only when `key` is not what it was."""
        if self._terminal:
            columns, lines = output.screen_columns(), output.screen_lines()
            kept = [output.fit(line, columns) for line in text.split("\n")[: lines - 1]]
            sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in kept) + "\x1b[J")
            sys.stdout.flush()
        elif key != self._key:
            output.answer(text)
        self._key = key
