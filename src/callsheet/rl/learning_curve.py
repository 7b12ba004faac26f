"""The learning curve: returns by steps and time, over all attempts of a run, for plots and stop conditions."""

from __future__ import annotations

import json
import time
from collections import deque
from typing import Any

import numpy as np

from callsheet.store import NotFound, Store

KEY = "metrics/curve.jsonl"
MAX_POINTS = 20_000
"""With more, every other point of the older half is dropped."""
WINDOW = 20
"""Episodes averaged into the return of a point."""


class RecentEpisodes:
    """The latest episodes that ended."""

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.steps: deque[int] = deque(maxlen=WINDOW)
        self.count = 0

    def add_ended(self, batch: dict[str, np.ndarray]) -> None:
        """Add the episodes that ended in a batch of rollouts: `episode_return` is NaN elsewhere."""
        ended = ~np.isnan(batch["episode_return"])
        self.add(batch["episode_return"][ended], batch["episode_steps"][ended])

    def add(self, returns: np.ndarray, steps: np.ndarray) -> None:
        """Add episodes by their returns and lengths."""
        self.returns.extend(returns.tolist())
        self.steps.extend(steps.tolist())
        self.count += len(returns)

    @property
    def mean(self) -> float | None:
        """Mean return; None until there are enough episodes."""
        return sum(self.returns) / WINDOW if len(self.returns) == WINDOW else None


class LearningCurve:
    """The points of a run. They are stored as one object, which a later attempt continues."""

    def __init__(self, store: Store | None, *, min_interval: float = 0.05) -> None:
        self._store = store
        self._min_interval = min_interval
        self.points: list[dict[str, Any]] = self._load()
        self._unsaved = False

    def _load(self) -> list[dict[str, Any]]:
        if self._store is None:
            return []
        try:
            text = self._store.get(KEY).decode(errors="replace")
        except NotFound:
            return []
        return [point for line in text.splitlines() if (point := _point(line)) is not None]

    def add(self, elapsed: float, point: dict[str, Any], *, always: bool = False) -> None:
        """Add a point, unless the last one is very recent."""
        if self.points and not always and elapsed - self.points[-1]["elapsed"] < self._min_interval:
            return
        rounded = {k: round(v, 6) if isinstance(v, float) else v for k, v in point.items() if v is not None}
        self.points.append({"elapsed": round(elapsed, 3), "time": round(time.time(), 3), **rounded})
        self._unsaved = True
        if len(self.points) > MAX_POINTS:
            half = MAX_POINTS // 2
            self.points[:half] = self.points[:half:2]

    def truncate(self, steps: int) -> None:
        """Drop the points after the checkpoint that a new attempt starts from."""
        self.points = [point for point in self.points if point.get("steps", 0) <= steps]

    def save(self) -> None:
        """Write the curve to the store."""
        if self._store is not None and self._unsaved:
            self._unsaved = False
            self._store.put(KEY, "".join(json.dumps(point) + "\n" for point in self.points).encode())


def _point(line: str) -> dict[str, Any] | None:
    """Parse a line. A damaged one gives None, so that it cannot stop a learner."""
    try:
        point = json.loads(line)
    except (ValueError, RecursionError):
        return None
    numbers = isinstance(point, dict) and (point.get("elapsed"), point.get("steps", 0))
    return point if numbers and all(isinstance(one, (int, float)) for one in numbers) else None
