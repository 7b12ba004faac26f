"""The learner: reads what actors played, improves the policy, publishes it, and saves checkpoints."""

from __future__ import annotations

import contextlib
import logging
import time

from callsheet.rl import endpoints
from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import spaces_of
from callsheet.rl.roles.evaluator import evaluation_message
from callsheet.rl.roles.learner_replay import ReplayUpdates
from callsheet.rl.roles.learner_rollouts import RolloutUpdates
from callsheet.rl.session import Session
from callsheet.rl.settings import Training
from callsheet.runtime import Context, ParameterServer, Schema, Stopping, TrajectoryReader
from callsheet.runtime.link.link import TimedOut

log = logging.getLogger("callsheet.rl")
_EVALUATION_INTERVAL = 0.05
"""Seconds between two checks for evaluation results."""


def device() -> str:
    """A GPU if this process has one and PyTorch can use it."""
    try:
        import torch
    except ModuleNotFoundError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def run(context: Context, training: Training) -> None:
    """Learn until the training is done or stopped."""
    chosen = algorithm(training.algorithm)
    spaces = spaces_of(training.env, options=training.options)
    learner = chosen.make_learner(spaces, training, device())
    session = Session(context, training, learner, spaces)
    session.resume()
    with (
        ParameterServer(context, endpoints.PARAMETERS) as parameters,
        TrajectoryReader(context, endpoints.EVALUATIONS, Schema.of(evaluation_message())) as evaluations,
    ):
        parameters.publish(session.updates, learner.snapshot())
        updates_from = RolloutUpdates if chosen.data == "rollouts" else ReplayUpdates
        source = updates_from(context, training, spaces, session, learner, parameters)
        with contextlib.closing(source):
            try:
                checked = 0.0
                while (reason := session.stop_reason()) is None:
                    source.update()
                    if time.monotonic() - checked > _EVALUATION_INTERVAL:
                        checked = time.monotonic()
                        _read_evaluations(session, evaluations)
            except Stopping:
                session.close(None)
                raise
            session.close(reason)
        log.info("done: %s", reason)


def _read_evaluations(session: Session, evaluations: TrajectoryReader) -> None:
    with contextlib.suppress(TimedOut):
        while True:
            message = evaluations.read(1, timeout=0)
            session.record_evaluation(int(message["version"][0]), float(message["mean"][0]))
