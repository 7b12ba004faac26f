"""The learner: reads what actors played, improves the policy, publishes it, and keeps what was learnt."""

from __future__ import annotations

import contextlib
import logging
import time

import numpy as np

from callsheet.rl.acting.rollouts import axes, schema
from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import spaces_of
from callsheet.rl.learner import Learner
from callsheet.rl.nets.shape import resolve, state_size
from callsheet.rl.roles.batches import AsTheyCome, InStep
from callsheet.rl.roles.evaluator import EVALUATIONS, verdict
from callsheet.rl.session import Session
from callsheet.rl.settings import Training
from callsheet.runtime import Context, ParameterServer, Schema, Stopping, TrajectoryReader
from callsheet.runtime.link.link import TimedOut

log = logging.getLogger("callsheet.rl")


def device() -> str:
    """A GPU when this process was given one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def run(context: Context, training: Training) -> None:
    """Learn until the training is over, or until told to stop."""
    chosen = algorithm(training.algorithm)
    spaces = spaces_of(training.env, options=training.options)
    config = chosen.settings(training)
    learner = chosen.make_learner(spaces, training, device())
    session = Session(context, training, learner)
    session.resume()
    shape = schema(
        spaces,
        config.rollout,
        config.environments,
        state=state_size(resolve(config.network, spaces)),
        values=chosen.in_step,
    )
    with (
        ParameterServer(context, "parameters") as parameters,
        TrajectoryReader(
            context,
            "trajectories",
            shape,
            axis=axes(list(shape.names)),
            max_policy_lag=None if chosen.in_step else config.max_policy_lag,
        ) as reader,
        TrajectoryReader(context, EVALUATIONS, Schema.of(verdict())) as evaluations,
    ):
        parameters.publish(session.updates, learner.snapshot())
        source = InStep(reader, training.actors) if chosen.in_step else AsTheyCome(reader, config.batch)
        try:
            while (reason := session.over()) is None:
                _learn(session, learner, source, parameters, in_step=chosen.in_step)
                _hear(session, evaluations)
        except Stopping:
            session.close(None)
            raise
        session.close(reason)
        log.info("the end: %s", reason)


def _learn(
    session: Session,
    learner: Learner,
    source: InStep | AsTheyCome,
    parameters: ParameterServer,
    *,
    in_step: bool,
) -> None:
    """One update. In step, actors get the policy before it: they play with that one while it is improved."""
    begun = time.monotonic()
    batch, lag = source.read(session.updates)
    here = time.monotonic()
    if in_step:
        parameters.publish(session.updates + 1, learner.snapshot())
    batch["progress"] = np.array(session.progress)
    told = learner.update(batch)
    if not in_step:
        parameters.publish(session.updates + 1, learner.snapshot())
    session.episodes.take(batch)
    took = time.monotonic() - here
    session.learnt(int(batch["valid"].sum()), told, waited=here - begun, took=took, lag=lag)


def _hear(session: Session, evaluations: TrajectoryReader) -> None:
    """What the evaluator has found meanwhile."""
    with contextlib.suppress(TimedOut):
        while True:
            found = evaluations.read(1, timeout=0)
            session.evaluated(int(found["version"][0]), float(found["mean"][0]))
