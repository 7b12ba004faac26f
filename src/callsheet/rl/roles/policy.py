"""The policy server: answers the observations of all actors with the newest policy, on a GPU when it has one."""

from __future__ import annotations

from typing import Any

import numpy as np

from callsheet.rl.acting.policy import policy_for
from callsheet.rl.acting.remote_policy import ENDPOINT, answer, question
from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import spaces_of
from callsheet.rl.envs.base import seed_of
from callsheet.rl.roles.learner import device
from callsheet.rl.settings import Training
from callsheet.runtime import Context, ParameterReader, PolicyServer

_SEED = 104_729
"""Sets the server's chance apart from that of all actors."""


def run(context: Context, training: Training) -> None:
    """Answer until told to stop."""
    spaces = spaces_of(training.env, options=training.options)
    config = algorithm(training.algorithm).settings(training)
    policy = policy_for(spaces, config.network, device())
    rng = np.random.default_rng(seed_of(training.seed, _SEED, context.index))

    def act(asked: dict[str, np.ndarray]) -> dict[str, Any]:
        observations = {key: asked[f"obs.{key}"] for key in spaces.observations}
        acted = policy.act(
            observations,
            rng,
            masks=asked.get("mask"),
            values=False,
            state=asked.get("state"),
            first=asked.get("first"),
        )
        found: dict[str, Any] = {"action": acted.action, "logp": acted.logp}
        return found | ({"state": acted.state} if policy.state_size else {})

    with ParameterReader(context, "parameters") as parameters:
        newest = parameters.wait()
        policy.load(newest.arrays)
        server = PolicyServer(
            context,
            ENDPOINT,
            act,
            max_batch=max(64, training.actors * config.environments),
            schema_in=question(spaces, policy.state_size),
            schema_out=answer(spaces, policy.state_size),
        )
        server.version = newest.version
        while True:
            server.step(timeout=1.0)
            found = parameters.poll()
            if found is not None:
                policy.load(found.arrays)
                server.version = found.version
