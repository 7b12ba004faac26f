"""Curves in a terminal: each character is a braille pattern of two by four dots.

Without colors, dots cannot distinguish several curves; then each curve has its own letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from callsheet.cli import formatting
from callsheet.cli.charts.scale import Axis, Series, axis, label

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character by row and column."""
_BRAILLE = 0x2800
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MIN_COLUMNS, _MIN_LINES = 20, 4

Paint = Callable[[str, int], str]
"""Colors a text like the series of this number."""


def draw(
    series: Sequence[Series],
    *,
    columns: int,
    lines: int,
    x_title: str,
    y_title: str,
    seconds: bool,
    paint: Paint | None,
) -> str:
    """The drawing with its legend, in at most this many columns and lines; without `paint`, without colors."""
    letters = paint is None and len(series) > 1
    legend = list(_legend(series, columns, paint, letters=letters))
    height = max(_MIN_LINES, lines - len(legend) - 4)
    points = [point for one in series for point in one.points]
    across = axis([x for x, _ in points], 6, from_zero=True)
    up = axis([y for _, y in points], max(2, height // 3))
    rows = {height - 1 - round(up.place(tick) * (height - 1)): label(tick, up) for tick in up.ticks}
    margin = max(len(text) for text in rows.values())
    width = max(_MIN_COLUMNS, columns - margin - 2)
    canvas = _Canvas(width, height, fine=not letters)
    for number, one in enumerate(series):
        canvas.curve([(across.place(x), up.place(y)) for x, y in one.points], number)
    body = [
        f"{rows.get(row, '').rjust(margin)} {'┤' if row in rows else '│'}{canvas.row(row, paint)}".rstrip()
        for row in range(height)
    ]
    ruler, numbers = _below(across, width, seconds=seconds)
    pad = " " * (margin + 1)
    return "\n".join(
        [
            *legend,
            f"{pad[1:]} {y_title}",
            *body,
            f"{pad}└{ruler}",
            _titled(f"{pad} {numbers}", x_title, columns),
        ]
    )


def _legend(series: Sequence[Series], columns: int, paint: Paint | None, *, letters: bool) -> Iterator[str]:
    for number, one in enumerate(series):
        mark = LETTERS[number % len(LETTERS)] if letters else "──"
        text = formatting.shorten(f"{mark} {one.name}", columns)
        yield paint(text, number) if paint else text


def _below(across: Axis, width: int, *, seconds: bool) -> tuple[str, str]:
    """The axis line with its ticks, and the labels below it; a label without room is left out."""
    ruler, numbers = ["─"] * width, [" "] * width
    free = 0
    for tick in across.ticks:
        at = round(across.place(tick) * (width - 1))
        ruler[at] = "┬"
        text = label(tick, across, seconds=seconds)
        start = min(max(0, at - len(text) // 2), width - len(text))
        if start >= free:
            numbers[start : start + len(text)] = text
            free = start + len(text) + 1
    return "".join(ruler), "".join(numbers).rstrip()


def _titled(line: str, title: str, columns: int) -> str:
    """The axis title after its labels, or below them if there is no room."""
    if len(line) + 2 + len(title) <= columns:
        return line + title.rjust(columns - len(line))
    return f"{line}\n{title.rjust(columns)}"


class _Canvas:
    """A grid of characters on which curves are drawn; where two cross, the later one's color wins."""

    def __init__(self, width: int, height: int, *, fine: bool) -> None:
        self._width, self._height = width, height
        self._fine = fine
        self._bits = [[0] * width for _ in range(height)]
        self._owner = [[-1] * width for _ in range(height)]

    def curve(self, points: Sequence[tuple[float, float]], number: int) -> None:
        """Draw a line through points between 0 and 1; (0, 0) is the bottom left."""
        across, down = (self._width * 2, self._height * 4) if self._fine else (self._width, self._height)
        places = [(round(x * (across - 1)), round((1 - y) * (down - 1))) for x, y in points]
        for (x0, y0), (x1, y1) in zip(places, places[1:] or places, strict=False):
            far = max(abs(x1 - x0), abs(y1 - y0), 1)
            for step in range(far + 1):
                self._dot(round(x0 + (x1 - x0) * step / far), round(y0 + (y1 - y0) * step / far), number)

    def _dot(self, x: int, y: int, number: int) -> None:
        column, row = (x // 2, y // 4) if self._fine else (x, y)
        self._bits[row][column] |= _DOTS[y % 4][x % 2] if self._fine else 1
        self._owner[row][column] = number

    def row(self, row: int, paint: Paint | None) -> str:
        """One line of characters."""
        text = ""
        for bits, owner in zip(self._bits[row], self._owner[row], strict=True):
            if not bits:
                text += " "
                continue
            char = chr(_BRAILLE + bits) if self._fine else LETTERS[owner % len(LETTERS)]
            text += paint(char, owner) if paint else char
        return text
