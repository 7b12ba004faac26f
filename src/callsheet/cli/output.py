"""All output of the command line: answers on stdout, everything else on stderr.

Colors only on a terminal, and not with NO_COLOR. `-o json` prints JSON and nothing else. Some imports are inside
functions because every verb's --help imports this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, TextIO

from callsheet.cli.formatting import RESET, clean, shorten, width

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
    "error": "1;31",
}
ROLE_COLORS = ("cyan", "magenta", "green", "yellow", "blue")
PHASE_COLORS = {
    "Running": "green",
    "Succeeded": "green",
    "Failed": "error",
    "Pending": "yellow",
    "Starting": "yellow",
    "Stopping": "yellow",
    "Suspended": "yellow",
    "Stopped": "dim",
}
_GAP = "  "


def prepare_streams() -> None:
    """Pass undecodable bytes of logs through, and never fail on a character that the terminal lacks."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
            reconfigure(errors="surrogateescape" if utf8 else "replace")


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal that understands more than plain lines."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_color(stream: TextIO) -> bool:
    """Whether to use colors on the stream."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """The text in a style, if the stream (default: stdout) shows colors."""
    if not style or not has_color(stream or sys.stdout):
        return text
    return f"\x1b[{_CODES[style]}m{text}{RESET}"


def answer(text: str) -> None:
    """Print the answer, on stdout."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def say(text: str, style: str = "") -> None:
    """Print a message beside the answer, on stderr."""
    sys.stdout.flush()
    sys.stderr.write(paint(text, style, sys.stderr) + "\n")
    sys.stderr.flush()


def complain(message: str, fix: str = "") -> None:
    """Print an error and how to fix it."""
    say(f"{paint('error:', 'error', sys.stderr)} {message}" + (f"\n  fix: {fix}" if fix else ""))


def next_commands(commands: Sequence[tuple[str, str]]) -> None:
    """Suggest commands to run next."""
    longest = max(len(command) for command, _ in commands)
    say("Next:")
    for command, purpose in commands:
        say(f"  {command.ljust(longest)}{_GAP}{paint('# ' + purpose, 'dim', sys.stderr)}")


def structured(data: Any, form: str) -> str:
    """Data as JSON or YAML text."""
    if form == "json":
        import json

        return json.dumps(data, indent=2)
    import yaml

    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, cut: bool = True) -> str:
    """Columns aligned by spaces; PHASE is colored. On a terminal the last column is cut at the edge, if `cut`."""
    lines = [list(header), *([cell.replace("\n", "↵") for cell in row] for row in rows)]
    widths = [max(width(line[column]) for line in lines) for column in range(len(header))]
    used = sum(widths[:-1]) + len(_GAP) * (len(header) - 1)
    room = screen_columns() - used if cut and is_terminal(sys.stdout) else 0
    phase = list(header).index("PHASE") if "PHASE" in header else -1
    text = []
    for number, line in enumerate(lines):
        cells = [cell + " " * (widths[column] - width(cell)) for column, cell in enumerate(line[:-1])]
        cells.append(shorten(line[-1], max(room, 20)) if room else line[-1])
        if number == 0:
            text.append(paint(_GAP.join(cells).rstrip(), "bold"))
            continue
        if phase >= 0:
            cells[phase] = paint(cells[phase], PHASE_COLORS.get(line[phase], ""))
        text.append(_GAP.join(cells).rstrip())
    return "\n".join(text)


def screen_columns() -> int:
    """Columns of the terminal."""
    import shutil

    return shutil.get_terminal_size().columns


def screen_lines() -> int:
    """Lines of the terminal."""
    import shutil

    return shutil.get_terminal_size().lines


def fit(line: str, columns: int) -> str:
    """A line cut to the screen; a cut line loses its colors."""
    plain = clean(line, colors=False)
    return line if width(plain) <= columns else shorten(plain, columns)


def short_path(path: str) -> str:
    """A path as you would type it: relative to the working directory, or with `~`."""
    from pathlib import Path

    if not path:
        return "-"
    for base, mark in ((Path.cwd(), ""), (Path.home(), "~/")):
        if Path(path).is_relative_to(base) and base != Path("/"):
            return mark + str(Path(path).relative_to(base))
    return path


class Redrawn:
    """For `-w`: redraws a text in place on a terminal; elsewhere prints it again when something changed."""

    def __init__(self) -> None:
        self._terminal = is_terminal(sys.stdout)
        self._key: Any = None

    def __enter__(self) -> Redrawn:
        if self._terminal:
            # The alternate screen: the previous content comes back at the end.
            sys.stdout.write("\x1b[?1049h\x1b[?25l")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal:
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()

    def show(self, text: str, *, key: Any) -> None:
        """Show the text; where it cannot be redrawn, only if `key` has changed."""
        if self._terminal:
            columns, lines = screen_columns(), screen_lines()
            kept = [fit(line, columns) for line in text.split("\n")[: lines - 1]]
            sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in kept) + "\x1b[J")
            sys.stdout.flush()
        elif key != self._key:
            answer(text)
        self._key = key
