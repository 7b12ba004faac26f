"""The learner: reads what actors played, improves the policy, publishes it, and keeps what was learned."""

from __future__ import annotations

import contextlib
import logging
import time

from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import spaces_of
from callsheet.rl.roles.evaluator import EVALUATIONS, verdict
from callsheet.rl.roles.learner_replay import FromReplay
from callsheet.rl.roles.learner_rollouts import FromRollouts
from callsheet.rl.session import Session
from callsheet.rl.settings import Training
from callsheet.runtime import Context, ParameterServer, Schema, Stopping, TrajectoryReader
from callsheet.runtime.link.link import TimedOut

log = logging.getLogger("callsheet.rl")
_LISTEN = 0.05
"""Seconds between two looks at what the evaluator says."""


def device() -> str:
    """A GPU when this process was given one, and PyTorch to use it."""
    try:
        import torch
    except ModuleNotFoundError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def run(context: Context, training: Training) -> None:
    """Learn until the training is over, or until told to stop."""
    chosen = algorithm(training.algorithm)
    spaces = spaces_of(training.env, options=training.options)
    learner = chosen.make_learner(spaces, training, device())
    session = Session(context, training, learner, spaces)
    session.resume()
    with (
        ParameterServer(context, "parameters") as parameters,
        TrajectoryReader(context, EVALUATIONS, Schema.of(verdict())) as evaluations,
    ):
        parameters.publish(session.updates, learner.snapshot())
        source_of = FromRollouts if chosen.data == "rollouts" else FromReplay
        with source_of(context, training, spaces, session, learner, parameters) as source:
            try:
                looked = 0.0
                while (reason := session.over()) is None:
                    source.learn()
                    if time.monotonic() - looked > _LISTEN:
                        looked = time.monotonic()
                        _hear(session, evaluations)
            except Stopping:
                session.close(None)
                raise
            session.close(reason)
        log.info("the end: %s", reason)


def _hear(session: Session, evaluations: TrajectoryReader) -> None:
    """What the evaluator has found meanwhile."""
    with contextlib.suppress(TimedOut):
        while True:
            found = evaluations.read(1, timeout=0)
            session.evaluated(int(found["version"][0]), float(found["mean"][0]))
