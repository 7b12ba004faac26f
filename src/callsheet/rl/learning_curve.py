"""The learning curve: how returns went with steps and time, over all attempts of a run, for plots and stops."""

from __future__ import annotations

import json
import time
from collections import deque
from typing import Any

import numpy as np

from callsheet.store import NotFound, Store

KEY = "metrics/curve.jsonl"
MOST = 20_000
"""Points; with more of them every other one of the older half goes."""
WINDOW = 20
"""Episodes whose mean is the return of a point."""


class Episodes:
    """The episodes that ended lately."""

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=WINDOW)
        self.steps: deque[int] = deque(maxlen=WINDOW)
        self.count = 0

    def take(self, batch: dict[str, np.ndarray]) -> None:
        """Those that ended in a batch of rollouts: `episode_return` is NaN where none did."""
        ended = ~np.isnan(batch["episode_return"])
        self.add(batch["episode_return"][ended], batch["episode_steps"][ended])

    def add(self, returns: np.ndarray, steps: np.ndarray) -> None:
        """Returns and lengths of episodes."""
        self.returns.extend(returns.tolist())
        self.steps.extend(steps.tolist())
        self.count += len(returns)

    @property
    def mean(self) -> float | None:
        """None before there are enough."""
        return sum(self.returns) / WINDOW if len(self.returns) == WINDOW else None


class Curve:
    """Points of the curve; they are put into the store as a whole, and a later attempt goes on with them."""

    def __init__(self, store: Store | None, *, least: float = 0.05) -> None:
        self._store = store
        self._least = least
        self.points: list[dict[str, Any]] = self._load()
        self._new = False

    def _load(self) -> list[dict[str, Any]]:
        if self._store is None:
            return []
        try:
            text = self._store.get(KEY).decode(errors="replace")
        except NotFound:
            return []
        return [point for line in text.splitlines() if (point := _point(line)) is not None]

    def add(self, elapsed: float, point: dict[str, Any], *, always: bool = False) -> None:
        """A point, unless the last one was a moment ago."""
        if self.points and not always and elapsed - self.points[-1]["elapsed"] < self._least:
            return
        rounded = {k: round(v, 6) if isinstance(v, float) else v for k, v in point.items() if v is not None}
        self.points.append({"elapsed": round(elapsed, 3), "time": round(time.time(), 3), **rounded})
        self._new = True
        if len(self.points) > MOST:
            half = MOST // 2
            self.points[:half] = self.points[:half:2]

    def forget_after(self, steps: int) -> None:
        """What came after the checkpoint with which a new attempt begins did not happen."""
        self.points = [point for point in self.points if point.get("steps", 0) <= steps]

    def save(self) -> None:
        """Put it where plots find it."""
        if self._store is not None and self._new:
            self._new = False
            self._store.put(KEY, "".join(json.dumps(point) + "\n" for point in self.points).encode())


def _point(line: str) -> dict[str, Any] | None:
    """A point of the curve; None for a line that is damaged, which must not keep a learner from going on."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    numbers = isinstance(found, dict) and (found.get("elapsed"), found.get("steps", 0))
    return found if numbers and all(isinstance(one, (int, float)) for one in numbers) else None
