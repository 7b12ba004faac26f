"""The evaluator: plays whole episodes with the newest policy, greedily, and tells the learner what they brought."""

from __future__ import annotations

import json
import logging
import time

import numpy as np

from callsheet.rl.acting.episodes import play
from callsheet.rl.acting.policies import policy_for
from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import make
from callsheet.rl.envs.base import seed_of
from callsheet.rl.settings import Training
from callsheet.runtime import Context, ParameterReader, Schema, TrajectoryWriter
from callsheet.store import open_store

log = logging.getLogger("callsheet.rl")
EVALUATIONS = "evaluations"
_SEED = 7_919
"""Sets the evaluator's episodes apart from those of all actors."""


def verdict(version: int = 0, mean: float = 0.0) -> dict[str, np.ndarray]:
    """What the learner is told."""
    return {"version": np.array(version, np.int64), "mean": np.array(mean, np.float64)}


def run(context: Context, training: Training) -> None:
    """Judge until told to stop."""
    chosen = algorithm(training.algorithm)
    wish = training.evaluation
    store = open_store(context.storage) if context.storage else None
    environments = make(
        training.env, min(wish.episodes, 16), seed=seed_of(training.seed, _SEED), options=training.options
    )
    try:
        config = chosen.settings(training)
        policy = policy_for(environments.spaces, config.network)
        with (
            ParameterReader(context, "parameters") as parameters,
            TrajectoryWriter(context, EVALUATIONS, Schema.of(verdict())) as writer,
        ):
            number = 0
            while True:
                newest = parameters.wait()
                policy.load(newest.arrays)
                number += 1
                begun = time.monotonic()
                played = play(environments, policy, wish.episodes, seed=seed_of(training.seed, _SEED, number))
                writer.write(verdict(newest.version, played.mean))
                log.info(
                    "version %s: mean return %.1f of %s episodes", newest.version, played.mean, wish.episodes
                )
                if store is not None:
                    told = {"version": newest.version, "returns": played.returns, "steps": played.steps}
                    told |= {
                        "mean": played.mean,
                        "seconds": round(time.monotonic() - begun, 3),
                        "time": time.time(),
                    }
                    store.put(f"evaluations/{newest.version:012d}.json", json.dumps(told).encode())
                context.sleep(wish.every)
    finally:
        environments.close()
