"""The few numbers of a role that a person wants to see: read beside the screen, and written short."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callsheet.cli import words
from callsheet.errors import CallsheetError

if TYPE_CHECKING:
    from callsheet.backends.base import Run
    from callsheet.cli.screens import Shown as ShownRun
    from callsheet.metrics.reading import Shown

_EVERY = 2.0
_BUSY = 5
"""A look that takes long is followed by a pause so many times as long."""
_LONGEST_PAUSE = 30.0
"""Not longer, though: what made it slow, such as a cluster that did not answer, may be over."""


def of(run: Run, *, ended: bool) -> dict[str, list[Shown]]:
    """The numbers of each role; none where they cannot be had now."""
    from callsheet.metrics.reading import shown_by_role

    try:
        return shown_by_role(run.metrics(), ended=ended)
    except CallsheetError:
        return {}


def text(numbers: Sequence[Shown]) -> str:
    """All numbers of a role in one line: ``steps 812k  speed 9312/s  return 195  hunger 3%``."""
    return "  ".join(f"{number.name} {value(number.value, number.unit)}" for number in numbers)


def value(number: float, unit: str = "") -> str:
    """A number with its unit, as short as it stays readable."""
    if unit == "bytes":
        return words.size(number)
    if unit == "bytes/s":
        return f"{words.size(number)}/s"
    if unit in ("share", "ratio"):
        return f"{100 * number:.0f}%"
    if unit == "seconds":
        return _duration(number)
    return f"{words.short(number)}{unit}" if unit == "/s" or not unit else f"{words.short(number)} {unit}"


def _duration(seconds: float) -> str:
    if abs(seconds) >= 120:
        return words.age(seconds)
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if abs(seconds) * factor >= 1 or seconds == 0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


class Numbers:
    """Keeps the numbers of runs on a screen current, from a thread for each: a slow cluster slows no screen."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._followed: set[str] = set()

    def follow(self, runs: Sequence[ShownRun]) -> None:
        """See to it that these runs are looked at."""
        for shown in runs:
            if shown.run.id not in self._followed:
                self._followed.add(shown.run.id)
                threading.Thread(target=self._look, args=(shown,), daemon=True).start()

    def close(self) -> None:
        """Look no longer."""
        self._over.set()

    def _look(self, shown: ShownRun) -> None:
        pause = 0.0
        while not self._over.wait(pause) and not shown.done:
            began = time.monotonic()
            shown.numbers = of(shown.run, ended=False)
            pause = pause_after(time.monotonic() - began)


def pause_after(took: float) -> float:
    """Seconds until the next look, after one that took so many."""
    return min(_LONGEST_PAUSE, max(_EVERY, _BUSY * took))
