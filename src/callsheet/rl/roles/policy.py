"""The policy server: chooses actions for all actors with the newest policy, on a GPU if it has one."""

from __future__ import annotations

from typing import Any

import numpy as np

from callsheet.rl import endpoints
from callsheet.rl.acting.policy import policy_for
from callsheet.rl.acting.remote_policy import request_schema, response_schema
from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import spaces_of
from callsheet.rl.envs.base import seed_of
from callsheet.rl.roles.learner import device
from callsheet.rl.settings import Training
from callsheet.runtime import Context, ParameterReader, PolicyServer

_SEED = 104_729
"""Makes the server's random numbers differ from those of all actors."""


def run(context: Context, training: Training) -> None:
    """Serve until stopped."""
    spaces = spaces_of(training.env, options=training.options)
    config = algorithm(training.algorithm).settings(training)
    policy = policy_for(spaces, config.network, device())
    rng = np.random.default_rng(seed_of(training.seed, _SEED, context.index))

    def act(request: dict[str, np.ndarray]) -> dict[str, Any]:
        observations = {key: request[f"obs.{key}"] for key in spaces.observations}
        actions = policy.act(
            observations,
            rng,
            masks=request.get("mask"),
            values=False,
            state=request.get("state"),
            first=request.get("first"),
        )
        response: dict[str, Any] = {"action": actions.action, "logp": actions.logp}
        return response | ({"state": actions.state} if policy.state_size else {})

    with ParameterReader(context, endpoints.PARAMETERS) as parameters:
        newest = parameters.wait()
        policy.load(newest.arrays)
        server = PolicyServer(
            context,
            endpoints.POLICY,
            act,
            max_batch=max(64, training.actors * config.environments),
            schema_in=request_schema(spaces, policy.state_size),
            schema_out=response_schema(spaces, policy.state_size),
        )
        server.version = newest.version
        while True:
            server.step(timeout=1.0)
            if (newer := parameters.poll()) is not None:
                policy.load(newer.arrays)
                server.version = newer.version
