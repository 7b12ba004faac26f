"""What actors report to the learner when their steps go to a replay: step counts and finished episodes."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import numpy as np

from callsheet.rl import endpoints
from callsheet.rl.acting.transitions import TransitionBatch
from callsheet.runtime import Context, Schema, TrajectoryReader, TrajectoryWriter
from callsheet.runtime.link.link import TimedOut

if TYPE_CHECKING:
    from callsheet.rl.session import Session

_INTERVAL = 0.1
"""Seconds between two reports while no episode ends, and between two reads."""


def _report(steps: int = 0, episode_return: float = np.nan, length: int = 0) -> dict[str, np.ndarray]:
    """A number of steps, and maybe an episode that ended with them (NaN: none)."""
    return {
        "steps": np.array(steps, np.int64),
        "return": np.array(episode_return, np.float32),
        "length": np.array(length, np.int32),
    }


class EpisodeReporter:
    """An actor's side."""

    def __init__(self, context: Context) -> None:
        self._writer = TrajectoryWriter(context, endpoints.EPISODES, Schema.of(_report()))
        self._steps = 0
        self._reported_at = time.monotonic()

    def report(self, played: TransitionBatch, version: int) -> None:
        """Report steps of a policy of this version, now or together with the next ones."""
        self._steps += played.steps
        now = time.monotonic()
        if not len(played.returns) and now - self._reported_at < _INTERVAL:
            return
        self._reported_at = now
        for episode_return, length in zip(played.returns, played.lengths, strict=True):
            self._writer.write(_report(self._steps, float(episode_return), int(length)), version)
            self._steps = 0
        if self._steps:
            self._writer.write(_report(self._steps), version)
            self._steps = 0

    def close(self) -> None:
        """Disconnect."""
        self._writer.close()


class EpisodeReports:
    """The learner's side."""

    def __init__(self, context: Context) -> None:
        self._reader = TrajectoryReader(context, endpoints.EPISODES, Schema.of(_report()))
        self._read_at = 0.0
        self.lag = 0.0
        """Age of the policy in the newest report, in updates."""

    def read(self, session: Session) -> int:
        """Add new episodes to the session; returns the number of new steps."""
        now = time.monotonic()
        if now - self._read_at < _INTERVAL:
            return 0
        self._read_at, steps = now, 0
        self._reader.version = session.updates
        with contextlib.suppress(TimedOut):
            while True:
                report = self._reader.read(1, timeout=0)
                steps += int(report["steps"][0])
                self.lag = float(report.lag[0])
                if not np.isnan(report["return"][0]):
                    session.episodes.add(report["return"], report["length"])
        return steps

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()
