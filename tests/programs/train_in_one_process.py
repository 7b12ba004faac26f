"""PPO in one process, by the same steps as its roles take. Arguments: the training's file, and where the weights go."""

from __future__ import annotations

import sys

import numpy as np

from callsheet.rl.acting.policy import policy_for
from callsheet.rl.acting.rollouts import Rollouts, axes, schema
from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import make
from callsheet.rl.envs.base import seed_of
from callsheet.rl.settings import read

training = read(sys.argv[1])
chosen = algorithm(training.algorithm)
config = chosen.settings(training)
actors = []
for index in range(training.actors):
    seed = seed_of(training.seed, index)
    environments = make(training.env, config.environments, seed=seed, options=training.options)
    policy = policy_for(environments.spaces, config.network)
    actors.append((Rollouts(environments, policy, seed), policy))
spaces = actors[0][0].environments.spaces
learner = chosen.make_learner(spaces, training, "cpu")
layout = schema(spaces, config.rollout, config.environments, values=True).layout(1)
arrays = [
    {name: array[0] for name, array in layout.views(memoryview(bytearray(layout.nbytes))).items()}
    for _ in actors
]
published = {name: array.copy() for name, array in learner.snapshot().items()}
steps = 0
while steps < training.stop.steps:
    for (rollouts, policy), out in zip(actors, arrays, strict=True):
        policy.load(published)
        rollouts.fill(out)
    along = axes(list(arrays[0]))
    batch = {name: np.concatenate([out[name] for out in arrays], along[name]) for name in arrays[0]}
    # Actors play with the weights as they were before this update, while it goes on.
    published = {name: array.copy() for name, array in learner.snapshot().items()}
    batch["progress"] = np.array(steps / training.stop.steps)
    learner.update(batch)
    steps += int(batch["valid"].sum())
np.savez(sys.argv[2], **learner.snapshot())
