"""Numbers and log lines for people: ages, sizes, metrics, and text that cannot upset a terminal."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))
_COLOR = r"\x1b\[[0-9;:]*m"
_ESCAPE = (
    _COLOR  # kept or dropped by the caller
    + r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # every other control sequence: cursor, screen, modes
    + r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # titles, hyperlinks and other strings up to their end
    + r"|\x1b[ -/]*[0-~]?"  # two-character escapes
    + r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]"  # bare control characters, tab excepted
)
RESET = "\x1b[0m"
MAX_LINE = 2000


def age(seconds: float) -> str:
    """A duration in at most two units: ``45s``, ``3m12s``, ``2h5m``, ``3d4h``."""
    whole = max(0, int(seconds))
    for place, (length, unit) in enumerate(_UNITS):
        if whole >= length:
            smaller, name = (_UNITS[place + 1]) if place + 1 < len(_UNITS) else (1, "s")
            rest = whole % length // smaller
            return f"{whole // length}{unit}{f'{rest}{name}' if rest else ''}"
    return f"{whole}s"


def size(count: float) -> str:
    """Bytes with the unit that keeps the number short: ``512 B``, ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def short(number: float) -> str:
    """A number in at most five characters or so: ``0.0123``, ``195``, ``12.3k``, ``4.56M``."""
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= factor:
            scale = 1e3 if unit == "k" else factor
            return f"{number / scale:.3g}{unit}"
    return f"{number:.0f}" if abs(number) >= 100 or number == int(number) else f"{number:.3g}"


def quantity(number: float, unit: str = "") -> str:
    """A metric with its unit, as short as it stays readable."""
    if unit == "bytes":
        return size(number)
    if unit == "bytes/s":
        return f"{size(number)}/s"
    if unit in ("share", "ratio"):
        return f"{100 * number:.0f}%"
    if unit == "seconds":
        return _seconds(number)
    return f"{short(number)}{unit}" if unit == "/s" or not unit else f"{short(number)} {unit}"


def _seconds(seconds: float) -> str:
    if abs(seconds) >= 120:
        return age(seconds)
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if abs(seconds) * factor >= 1 or seconds == 0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def count(number: int, noun: str) -> str:
    """``1 replica``, ``1,200 replicas``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def clean(text: str, *, colors: bool) -> str:
    """A log line that cannot move the cursor or clear the screen; its own colors stay if wanted."""
    text = text.rstrip("\r\n")
    if "\r" in text:
        # A progress bar rewrites its line: a terminal would show the last part.
        text = text.rpartition("\r")[2]
    if len(text) > MAX_LINE:
        text = f"{text[:MAX_LINE]}… ({len(text) - MAX_LINE:,} more characters)"
    if text.isprintable():
        return text
    escape, color = _patterns()
    text = escape.sub(lambda match: match[0] if colors and color.fullmatch(match[0]) else "", text)
    return text + RESET if colors and "\x1b" in text else text


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compiled on first use, so that --help need not wait."""
    return re.compile(_ESCAPE, re.DOTALL), re.compile(_COLOR)


def width(text: str) -> int:
    """Columns that the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def shorten(text: str, columns: int) -> str:
    """The text cut to this many columns, with an ellipsis if something was cut."""
    if columns <= 0 or width(text) <= columns:
        return text
    kept = text
    while kept and width(kept) > columns - 1:
        kept = kept[: -max(1, (width(kept) - columns + 1) // 2)]
    return kept + "…"
