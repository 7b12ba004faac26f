"""Learning from transitions that actors put into a replay."""

from __future__ import annotations

import contextlib
import time
from types import TracebackType
from typing import Any, cast

import numpy as np

from callsheet.rl.algorithms import algorithm
from callsheet.rl.algorithms.learner import Learner, ReplayLearner
from callsheet.rl.roles.episode_reports import Reports
from callsheet.rl.session import Session
from callsheet.rl.settings import Training
from callsheet.rl.spaces import Spaces
from callsheet.runtime import Context, ParameterServer, ReplayClient
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.replay.client.sampler import Sample

_PATIENCE = 0.1
"""Seconds without transitions after which actors and evaluator are listened to, and the end is looked for."""
_LARGEST = 1e6
"""A priority that no finite error needs to exceed."""


class FromReplay:
    """Samples in, new priorities back, and a version of the policy out after some updates."""

    def __init__(
        self,
        context: Context,
        training: Training,
        spaces: Spaces,
        session: Session,
        learner: Learner,
        parameters: ParameterServer,
    ) -> None:
        config: Any = algorithm(training.algorithm).settings(training)
        self._beta: float | None = getattr(config, "beta", None)
        self._publish_every: int = config.publish_every
        self._session, self._parameters = session, parameters
        self._learner = cast(ReplayLearner, learner)
        self._replay = ReplayClient(context, "replay", batch=config.batch)
        self._reports = Reports(context)
        self._waited = 0.0
        self._steps = 0

    def learn(self) -> None:
        """One update, if there is something to learn from."""
        session, learner = self._session, self._learner
        begun = time.monotonic()
        sample: Sample | None = None
        with contextlib.suppress(TimedOut):
            sample = self._replay.sample(timeout=_PATIENCE)
        here = time.monotonic()
        self._waited += here - begun
        self._steps += self._reports.hear(session)
        if sample is None:
            return
        batch: dict[str, Any] = dict(sample.arrays)
        batch["progress"] = progress = np.array(session.progress)
        if self._beta is not None:
            batch["weight"] = sample.weights(self._beta + (1.0 - self._beta) * float(progress))
        told = learner.update(batch)
        if learner.priorities is not None:
            self._replay.update(sample.keys, np.minimum(learner.priorities, _LARGEST))
        updates = session.updates + 1
        if updates % self._publish_every == 0:
            self._parameters.publish(updates, learner.snapshot())
        took = time.monotonic() - here
        session.learned(self._steps, told, waited=self._waited, took=took, lag=self._reports.lag)
        self._waited, self._steps = 0.0, 0

    def __enter__(self) -> FromReplay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reports.__exit__(kind, error, trace)
        self._replay.close()
