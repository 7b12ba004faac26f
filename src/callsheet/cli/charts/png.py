"""Curves as a PNG, drawn with Pillow at three times the size and scaled down, which smooths the lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from callsheet.cli.charts.scale import Axis, Series, axis, label
from callsheet.errors import UserError

_SIZE = (960, 600)
_FINE = 3
"""Scale of the drawing."""
_COLORS = ("#1f6fb4", "#d1495b", "#2e8b57", "#e08e00", "#7a4ea3", "#00868b", "#8c564b", "#555555")
_INK, _GRAY, _PAPER = "#222222", "#e3e3e3", "#ffffff"
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 24, 24, 56
_TEXT, _LINE = 14, 20


def write(path: Path, series: Sequence[Series], *, title: str, x_title: str, seconds: bool) -> None:
    """Draw the curves into a file."""
    image, draw_on, font_of = _pillow()
    picture = image.new("RGB", (_SIZE[0] * _FINE, _SIZE[1] * _FINE), _PAPER)
    page = _Page(draw_on(picture), font_of(_TEXT * _FINE))
    points = [point for one in series for point in one.points]
    across = axis([x for x, _ in points], 7, from_zero=True)
    up = axis([y for _, y in points], 7)
    top = _TOP + _LINE * (1 + len(series))
    box = (_LEFT, top, _SIZE[0] - _RIGHT, _SIZE[1] - _BOTTOM)
    page.grid(box, across, up, seconds=seconds)
    for number, one in enumerate(series):
        color = _COLORS[number % len(_COLORS)]
        page.curve(box, [(across.place(x), up.place(y)) for x, y in one.points], color)
        row = _TOP + _LINE * (1 + number)
        page.line([(_LEFT, row), (_LEFT + 26, row)], color, 2.5)
        page.text(_LEFT + 34, row, one.name, "lm")
    page.text(_LEFT, _TOP - 4, title, "lm")
    page.text((box[0] + box[2]) / 2, _SIZE[1] - 14, x_title, "mm")
    try:
        picture.resize(_SIZE, image.Resampling.LANCZOS).save(path, "PNG")
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}",
            fix="choose a file in an existing folder",
        ) from None


class _Page:
    """A drawing in pixels of the final image."""

    def __init__(self, draw: Any, font: Any) -> None:
        self._draw, self._font = draw, font

    def line(self, points: Sequence[tuple[float, float]], color: str, width: float = 1.0) -> None:
        self._draw.line(
            [(x * _FINE, y * _FINE) for x, y in points],
            fill=color,
            width=round(width * _FINE),
            joint="curve",
        )

    def text(self, x: float, y: float, text: str, anchor: str) -> None:
        self._draw.text((x * _FINE, y * _FINE), text, fill=_INK, font=self._font, anchor=anchor)

    def grid(self, box: tuple[float, float, float, float], across: Axis, up: Axis, *, seconds: bool) -> None:
        left, top, right, bottom = box
        for tick in across.ticks:
            x = left + across.place(tick) * (right - left)
            self.line([(x, top), (x, bottom)], _GRAY)
            self.text(x, bottom + 14, label(tick, across, seconds=seconds), "mm")
        for tick in up.ticks:
            y = bottom - up.place(tick) * (bottom - top)
            self.line([(left, y), (right, y)], _GRAY)
            self.text(left - 8, y, label(tick, up), "rm")
        self.line([(left, top), (left, bottom), (right, bottom)], _INK)

    def curve(
        self, box: tuple[float, float, float, float], points: Sequence[tuple[float, float]], color: str
    ) -> None:
        left, top, right, bottom = box
        places = [(left + x * (right - left), bottom - y * (bottom - top)) for x, y in points]
        if len(places) > 1:
            self.line(places, color, 2.0)
        for x, y in places if len(places) < 30 else ():
            spot = [(x - 3) * _FINE, (y - 3) * _FINE, (x + 3) * _FINE, (y + 3) * _FINE]
            self._draw.ellipse(spot, fill=color)


def _pillow() -> tuple[Any, Any, Any]:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ModuleNotFoundError:
        raise UserError(
            "images need Pillow, which is not installed",
            fix="pip install 'callsheet[video]', or leave -o out to draw in the terminal",
        ) from None
    return Image, ImageDraw.Draw, ImageFont.load_default
