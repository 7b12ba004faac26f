"""The evaluator: plays whole episodes with the newest policy, greedily, and reports the results to the learner."""

from __future__ import annotations

import json
import logging
import time

import numpy as np

from callsheet.errors import RetryError, UserError
from callsheet.rl import endpoints
from callsheet.rl.acting.episodes import EpisodeResults, play
from callsheet.rl.acting.policy import Policy, policy_for
from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import Environments, make
from callsheet.rl.envs.base import seed_of
from callsheet.rl.nets.parameters import Snapshot
from callsheet.rl.settings import Training
from callsheet.rl.videos import Video, play_and_record
from callsheet.runtime import Context, ParameterReader, Schema, TrajectoryWriter
from callsheet.store import Store, open_store

log = logging.getLogger("callsheet.rl")
_SEED = 7_919
"""Makes the evaluator's episodes differ from those of all actors."""


def evaluation_message(version: int = 0, mean: float = 0.0) -> dict[str, np.ndarray]:
    """What the learner receives."""
    return {"version": np.array(version, np.int64), "mean": np.array(mean, np.float64)}


def run(context: Context, training: Training) -> None:
    """Evaluate until stopped."""
    store = open_store(context.storage) if context.storage else None
    settings = training.evaluation
    environments = make(
        training.env,
        min(settings.episodes, 16),
        seed=seed_of(training.seed, _SEED),
        options=training.options,
    )
    try:
        config = algorithm(training.algorithm).settings(training)
        evaluator = _Evaluator(environments, policy_for(environments.spaces, config.network), store, training)
        with (
            ParameterReader(context, endpoints.PARAMETERS) as parameters,
            TrajectoryWriter(context, endpoints.EVALUATIONS, Schema.of(evaluation_message())) as writer,
        ):
            while True:
                newest = parameters.wait()
                mean = evaluator.evaluate(newest.version, newest.arrays)
                writer.write(evaluation_message(newest.version, mean))
                context.sleep(settings.every)
    finally:
        environments.close()


class _Evaluator:
    """Plays versions of a policy, each with new seeds, and stores the results."""

    def __init__(
        self, environments: Environments, policy: Policy, store: Store | None, training: Training
    ) -> None:
        self._environments = environments
        self._policy = policy
        self._store = store
        self._training = training
        self._videos = training.evaluation.videos
        self._number = 0

    def evaluate(self, version: int, arrays: Snapshot) -> float:
        """The mean return of a version."""
        start = time.monotonic()
        self._policy.load(arrays)
        self._number += 1
        settings = self._training.evaluation
        results, videos = self._play(version)
        log.info(
            "version %s: mean return %.1f of %s episodes%s",
            version,
            results.mean,
            settings.episodes,
            f", {results.cut} of them cut off at {settings.longest:,} steps" if results.cut else "",
        )
        if self._store is not None:
            stored = {
                "version": version,
                "returns": results.returns,
                "steps": results.steps,
                "mean": results.mean,
                "cut": results.cut,
                "videos": [video.key for video in videos],
                "seconds": round(time.monotonic() - start, 3),
                "time": time.time(),
            }
            try:
                self._store.put(f"evaluations/{version:012d}.json", json.dumps(stored).encode())
            except RetryError as error:
                # The learner still gets the result: an unavailable store must not stop the training.
                log.error("%s; the result of version %s is not stored", error.message, version)
        return results.mean

    def _play(self, version: int) -> tuple[EpisodeResults, list[Video]]:
        training, settings = self._training, self._training.evaluation
        seed = seed_of(training.seed, _SEED, self._number)
        if self._videos and self._store is not None:
            try:
                return play_and_record(
                    self._environments,
                    training.env,
                    self._policy,
                    self._store,
                    episodes=settings.episodes,
                    videos=self._videos,
                    name=f"{version:012d}",
                    seed=seed,
                    options=training.options,
                    longest=settings.longest,
                )
            except UserError as error:
                # Evaluate without videos: the training needs the result.
                log.error("recording no more videos: %s", error)
                self._videos = 0
            except RetryError as error:
                log.error("%s; version %s is evaluated without a video", error.message, version)
        results = play(
            self._environments, self._policy, settings.episodes, seed=seed, longest=settings.longest
        )
        return results, []
