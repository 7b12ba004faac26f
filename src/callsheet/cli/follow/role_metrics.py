"""The few metrics of a role that people want to see: polled in the background, and formatted in one line."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callsheet.cli import formatting
from callsheet.errors import CallsheetError

if TYPE_CHECKING:
    from callsheet.backends.base import Run
    from callsheet.cli.follow.screen import FollowedRun
    from callsheet.metrics.reader import ShownMetric

_INTERVAL = 2.0
_BACKOFF = 5
"""After a slow read, pause this many times as long as it took."""
_MAX_PAUSE = 30.0
"""What made a read slow, such as a cluster that did not answer, may be over."""


def of(run: Run, *, ended: bool) -> dict[str, list[ShownMetric]]:
    """The metrics of each role; empty if they cannot be read now."""
    from callsheet.metrics.reader import shown_by_role

    try:
        return shown_by_role(run.metrics(), ended=ended)
    except CallsheetError:
        return {}


def text(metrics: Sequence[ShownMetric]) -> str:
    """The metrics of a role in one line: ``steps 812k  speed 9312/s  return 195  hunger 3%``."""
    return "  ".join(f"{metric.name} {formatting.quantity(metric.value, metric.unit)}" for metric in metrics)


class MetricsPoller:
    """Keeps the metrics of runs on a screen current, one thread per run: a slow cluster must not slow the screen."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._followed: set[str] = set()

    def follow(self, runs: Sequence[FollowedRun]) -> None:
        """Poll these runs too."""
        for followed in runs:
            if followed.run.id not in self._followed:
                self._followed.add(followed.run.id)
                threading.Thread(target=self._poll, args=(followed,), daemon=True).start()

    def close(self) -> None:
        """Stop polling."""
        self._closed.set()

    def _poll(self, followed: FollowedRun) -> None:
        pause = 0.0
        while not self._closed.wait(pause) and not followed.done:
            began = time.monotonic()
            followed.metrics = of(followed.run, ended=False)
            pause = pause_after(time.monotonic() - began)


def pause_after(took: float) -> float:
    """Seconds until the next read, after one that took this long."""
    return min(_MAX_PAUSE, max(_INTERVAL, _BACKOFF * took))
