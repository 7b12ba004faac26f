"""The actor: plays its environments with the newest policy and sends what happened."""

from __future__ import annotations

import time

from callsheet.metrics.wellknown import Acting
from callsheet.rl.acting.policies import policy_for
from callsheet.rl.acting.rollouts import Rollouts, schema
from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import make
from callsheet.rl.envs.base import seed_of
from callsheet.rl.settings import Training
from callsheet.runtime import Context, ParameterReader, TrajectoryWriter

TRAJECTORIES, PARAMETERS = "trajectories", "parameters"


def run(context: Context, training: Training) -> None:
    """Play until told to stop."""
    chosen = algorithm(training.algorithm)
    seed = seed_of(training.seed, context.index)
    config = chosen.settings(training)
    environments = make(training.env, config.environments, seed=seed, options=training.options)
    try:
        policy = policy_for(environments.spaces, config.network)
        rollouts = Rollouts(environments, policy, seed)
        shape = schema(
            environments.spaces,
            config.rollout,
            config.environments,
            state=policy.state_size,
            values=chosen.in_step,
        )
        ahead = 1 if chosen.in_step else config.ahead
        metrics = Acting(context.metrics)
        metrics.episodes.follow(lambda: rollouts.episodes)
        metrics.broken.follow(lambda: rollouts.broken)
        metrics.restarts.follow(lambda: environments.restarts)
        with (
            ParameterReader(context, PARAMETERS) as parameters,
            TrajectoryWriter(context, TRAJECTORIES, shape, ahead=ahead) as writer,
        ):
            newest = parameters.wait()
            policy.load(newest.arrays)
            while True:
                with writer.rollout(version=newest.version) as arrays:
                    metrics.steps.add(rollouts.fill(arrays))
                begun = time.monotonic()
                found = parameters.wait() if chosen.in_step else parameters.poll()
                metrics.waiting.add(time.monotonic() - begun)
                if found is not None:
                    newest = found
                    policy.load(newest.arrays)
    finally:
        environments.close()
