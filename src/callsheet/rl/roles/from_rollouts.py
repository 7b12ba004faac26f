"""Learning from rollouts that actors send to the learner itself."""

from __future__ import annotations

import time
from types import TracebackType

import numpy as np

from callsheet.rl.acting.rollouts import axes, schema
from callsheet.rl.algorithms import algorithm
from callsheet.rl.learner import Learner
from callsheet.rl.nets.shape import resolve, state_size
from callsheet.rl.roles.batches import AsTheyCome, InStep
from callsheet.rl.session import Session
from callsheet.rl.settings import Training
from callsheet.rl.spaces import Spaces
from callsheet.runtime import Context, ParameterServer, TrajectoryReader


class FromRollouts:
    """Batches of rollouts in, a version of the policy out after each."""

    def __init__(
        self,
        context: Context,
        training: Training,
        spaces: Spaces,
        session: Session,
        learner: Learner,
        parameters: ParameterServer,
    ) -> None:
        chosen = algorithm(training.algorithm)
        config = chosen.settings(training)
        self._in_step = chosen.in_step
        self._session, self._learner, self._parameters = session, learner, parameters
        shape = schema(
            spaces,
            config.rollout,
            config.environments,
            state=state_size(resolve(config.network, spaces)),
            values=self._in_step,
        )
        self._reader = TrajectoryReader(
            context,
            "trajectories",
            shape,
            axis=axes(list(shape.names)),
            max_policy_lag=None if self._in_step else getattr(config, "max_policy_lag", None),
        )
        self._source: InStep | AsTheyCome
        if self._in_step:
            self._source = InStep(self._reader, training.actors)
        else:
            self._source = AsTheyCome(self._reader, getattr(config, "batch", 1))

    def learn(self) -> None:
        """One update. In step, actors get the policy before it: they play with that one while it is improved."""
        session, learner = self._session, self._learner
        begun = time.monotonic()
        batch, lag = self._source.read(session.updates)
        here = time.monotonic()
        if self._in_step:
            self._parameters.publish(session.updates + 1, learner.snapshot())
        batch["progress"] = np.array(session.progress)
        told = learner.update(batch)
        if not self._in_step:
            self._parameters.publish(session.updates + 1, learner.snapshot())
        session.episodes.take(batch)
        took = time.monotonic() - here
        session.learned(int(batch["valid"].sum()), told, waited=here - begun, took=took, lag=lag)

    def __enter__(self) -> FromRollouts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()
