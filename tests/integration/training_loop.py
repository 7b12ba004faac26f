"""A training from rollouts in one process, with the parts that the roles use."""

from __future__ import annotations

from typing import Any

import numpy as np

from callsheet.rl.acting.policy import policy_for
from callsheet.rl.acting.rollouts import Rollouts, schema
from callsheet.rl.algorithms import algorithm
from callsheet.rl.algorithms.learner import Learner
from callsheet.rl.envs import make
from callsheet.rl.envs.base import seed_of
from callsheet.rl.learning_curve import RecentEpisodes
from callsheet.rl.settings import Training


class Loop:
    """Actors and a learner in turns. As in processes that go in step, what is played lags one update behind."""

    def __init__(self, training: Training) -> None:
        chosen = algorithm(training.algorithm)
        config = chosen.settings(training)
        indices = range(training.actors)
        seeds = [seed_of(training.seed, index) for index in indices]
        self._environments = [
            make(training.env, config.environments, seed=seed, options=training.options, isolate=False)
            for seed in seeds
        ]
        spaces = self._environments[0].spaces
        self.learner: Learner = chosen.make_learner(spaces, training, "cpu")
        self._policies = [policy_for(spaces, config.network) for _ in indices]
        self._rollouts = [
            Rollouts(*both) for both in zip(self._environments, self._policies, seeds, strict=True)
        ]
        shape = schema(
            spaces,
            config.rollout,
            config.environments,
            state=self._policies[0].state_size,
            values=chosen.in_step,
        )
        self._batches = [{one.name: np.empty(one.shape, one.dtype) for one in shape.fields} for _ in indices]
        self._behind = self._snapshot()
        self.episodes = RecentEpisodes()
        self.steps = self.updates = 0

    def _snapshot(self) -> dict[str, Any]:
        return {name: np.array(array) for name, array in self.learner.snapshot().items()}

    def update(self) -> None:
        """All actors play, then the learner learns."""
        for policy, rollouts, arrays in zip(self._policies, self._rollouts, self._batches, strict=True):
            policy.load(self._behind)
            self.steps += rollouts.fill(arrays)
        batch = {
            name: np.concatenate([one[name] for one in self._batches], axis=0 if name == "state" else 1)
            for name in self._batches[0]
        }
        self._behind = self._snapshot()
        self.learner.update(batch)
        self.episodes.add_ended(batch)
        self.updates += 1

    def close(self) -> None:
        for environments in self._environments:
            environments.close()
