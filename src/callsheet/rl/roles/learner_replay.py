"""How the learner learns from transitions in a replay."""

from __future__ import annotations

import contextlib
import time
from typing import Any, cast

import numpy as np

from callsheet.rl import endpoints
from callsheet.rl.algorithms import algorithm
from callsheet.rl.algorithms.learner import Learner, ReplayLearner
from callsheet.rl.roles.episode_reports import EpisodeReports
from callsheet.rl.session import Session
from callsheet.rl.settings import PrioritizedReplaySettings, ReplaySettings, Training
from callsheet.rl.spaces import Spaces
from callsheet.runtime import Context, ParameterServer, ReplayClient
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.replay.client.sampler import Sample

_SAMPLE_TIMEOUT = 0.1
"""Seconds to wait for transitions before checking on actors, evaluator and stop conditions."""
_MAX_PRIORITY = 1e6


class ReplayUpdates:
    """Samples transitions, sends back new priorities, and publishes the policy every few updates."""

    def __init__(
        self,
        context: Context,
        training: Training,
        spaces: Spaces,
        session: Session,
        learner: Learner,
        parameters: ParameterServer,
    ) -> None:
        config = algorithm(training.algorithm).settings(training)
        assert isinstance(config, ReplaySettings)
        self._beta = config.beta if isinstance(config, PrioritizedReplaySettings) else None
        self._publish_every = config.publish_every
        self._session, self._parameters = session, parameters
        self._learner = cast(ReplayLearner, learner)
        self._replay = ReplayClient(context, endpoints.REPLAY, batch=config.batch)
        self._reports = EpisodeReports(context)
        self._waited = 0.0
        self._steps = 0

    def update(self) -> None:
        """One update, if there are transitions to learn from."""
        session, learner = self._session, self._learner
        start = time.monotonic()
        sample: Sample | None = None
        with contextlib.suppress(TimedOut):
            sample = self._replay.sample(timeout=_SAMPLE_TIMEOUT)
        sampled = time.monotonic()
        self._waited += sampled - start
        self._steps += self._reports.read(session)
        if sample is None:
            return
        batch: dict[str, Any] = dict(sample.arrays)
        batch["progress"] = progress = np.array(session.progress)
        if self._beta is not None:
            batch["weight"] = sample.weights(self._beta + (1.0 - self._beta) * float(progress))
        metrics = learner.update(batch)
        if learner.priorities is not None:
            self._replay.update(sample.keys, np.minimum(learner.priorities, _MAX_PRIORITY))
        updates = session.updates + 1
        if updates % self._publish_every == 0:
            self._parameters.publish(updates, learner.snapshot())
        took = time.monotonic() - sampled
        session.record_update(self._steps, metrics, waited=self._waited, took=took, lag=self._reports.lag)
        self._waited, self._steps = 0.0, 0

    def close(self) -> None:
        """Disconnect."""
        self._reports.close()
        self._replay.close()
