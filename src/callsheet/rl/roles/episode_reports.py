"""What actors tell the learner when their steps go to a replay: how many there were, and which episodes ended."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from callsheet.rl.acting.transitions import Played
from callsheet.runtime import Context, Schema, TrajectoryReader, TrajectoryWriter
from callsheet.runtime.link.link import TimedOut

if TYPE_CHECKING:
    from callsheet.rl.session import Session

EPISODES = "episodes"
_EVERY = 0.1
"""Seconds between two reports while no episode ends, and between two looks at them."""


def report(steps: int = 0, returned: float = np.nan, length: int = 0) -> dict[str, np.ndarray]:
    """So many steps, and maybe an episode that ended with them; NaN: none did."""
    return {
        "steps": np.array(steps, np.int64),
        "return": np.array(returned, np.float32),
        "length": np.array(length, np.int32),
    }


class Reporter:
    """An actor's side."""

    def __init__(self, context: Context) -> None:
        self._writer = TrajectoryWriter(context, EPISODES, Schema.of(report()))
        self._steps = 0
        self._told = time.monotonic()

    def tell(self, played: Played, version: int) -> None:
        """Steps of a policy of this version, now or with the next ones."""
        self._steps += played.steps
        now = time.monotonic()
        if not len(played.returns) and now - self._told < _EVERY:
            return
        self._told = now
        for returned, length in zip(played.returns, played.lengths, strict=True):
            self._writer.write(report(self._steps, float(returned), int(length)), version)
            self._steps = 0
        if self._steps:
            self._writer.write(report(self._steps), version)
            self._steps = 0

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()


class Reports:
    """The learner's side."""

    def __init__(self, context: Context) -> None:
        self._reader = TrajectoryReader(context, EPISODES, Schema.of(report()))
        self._looked = 0.0
        self.lag = 0.0
        """How many updates older the policy was that the newest report is about."""

    def hear(self, session: Session) -> int:
        """What came since the last time: the episodes go to the session; the number of steps that are new."""
        now = time.monotonic()
        if now - self._looked < _EVERY:
            return 0
        self._looked, steps = now, 0
        self._reader.version = session.updates
        with contextlib.suppress(TimedOut):
            while True:
                found = self._reader.read(1, timeout=0)
                steps += int(found["steps"][0])
                self.lag = float(found.lag[0])
                if not np.isnan(found["return"][0]):
                    session.episodes.add(found["return"], found["length"])
        return steps

    def __enter__(self) -> Reports:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()
