"""A training from a replay in one process, with the parts that the roles use."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from callsheet.rl.acting.policy import policy_for
from callsheet.rl.acting.transitions import Transitions
from callsheet.rl.algorithms import algorithm
from callsheet.rl.algorithms.learner import ReplayLearner
from callsheet.rl.envs import make
from callsheet.rl.learning_curve import RecentEpisodes
from callsheet.rl.settings import PrioritizedReplaySettings, ReplaySettings, Training
from callsheet.runtime.replay.client.sampler import Sample
from callsheet.runtime.replay.config import KEY, PROBABILITY, Table
from callsheet.runtime.replay.server.table import LiveTable
from callsheet.runtime.schema import Schema


class ReplayLoop:
    """An actor, a table of the replay and a learner in turns."""

    def __init__(self, training: Training) -> None:
        chosen = algorithm(training.algorithm)
        config = chosen.settings(training)
        self._environments = make(
            training.env, config.environments, seed=1, options=training.options, isolate=False
        )
        spaces = self._environments.spaces
        self.learner = cast(ReplayLearner, chosen.make_learner(spaces, training, "cpu"))
        self._policy = policy_for(spaces, config.network)
        assert isinstance(config, ReplaySettings)
        self._config = config
        self._transitions = Transitions(
            self._environments,
            self._policy,
            1,
            steps=config.rollout,
            n=config.n_step,
            gamma=config.gamma,
            epsilon=config.epsilons(actor=0, actors=1),
        )
        self._table = LiveTable(
            Table(
                kind="prioritized" if isinstance(config, PrioritizedReplaySettings) else "uniform",
                items=config.capacity,
                alpha=getattr(config, "alpha", 0.0),
                min_size=config.warmup,
                seed=1,
            )
        )
        self._out: dict[str, Any] = {}
        self._owed = 0.0
        self.episodes = RecentEpisodes()
        self.steps = self.updates = 0

    def turn(self) -> None:
        """The actor plays, then the learner makes as many updates as belong to that."""
        self._policy.load(self.learner.snapshot())
        played = self._transitions.play(at_random=not self.updates)
        self.episodes.add(played.returns, played.lengths)
        self.steps += played.steps
        self._insert(played.items, played.priorities)
        if self._table.size < self._config.warmup:
            return
        self._owed += self._config.updates_per_step * played.steps
        while self._owed >= 1:
            self._owed -= 1
            self._learn()

    def _insert(self, items: dict[str, Any], priorities: Any) -> None:
        if self._table.schema is None:
            schema = Schema.of({name: array[0] for name, array in items.items()})
            self._table.allocate(schema)
            assert self._table.sample_schema is not None
            self._out = {
                one.name: np.empty((self._config.batch, *one.shape), one.dtype)
                for one in self._table.sample_schema.fields
            }
        known = np.full(len(items["reward"]), np.nan, np.float32) if priorities is None else priorities
        self._table.insert(items, 0, known)

    def _learn(self) -> None:
        self._table.sample(self._config.batch, self._out)
        batch = {name: array for name, array in self._out.items() if name not in (KEY, PROBABILITY)}
        if hasattr(self._config, "beta"):
            sample = Sample({}, self._out[KEY], self._out[PROBABILITY], self._table.size)
            batch["weight"] = sample.weights(self._config.beta)
        self.learner.update(batch)
        if self.learner.priorities is not None:
            self._table.update(self._out[KEY], self.learner.priorities)
        self.updates += 1

    def close(self) -> None:
        self._environments.close()
