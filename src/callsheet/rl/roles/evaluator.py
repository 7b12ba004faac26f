"""The evaluator: plays whole episodes with the newest policy, greedily, and tells the learner what they brought."""

from __future__ import annotations

import json
import logging
import time

import numpy as np

from callsheet.errors import RetryError, UserError
from callsheet.rl.acting.episodes import Played, play
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
EVALUATIONS = "evaluations"
_SEED = 7_919
"""Sets the evaluator's episodes apart from those of all actors."""


def verdict(version: int = 0, mean: float = 0.0) -> dict[str, np.ndarray]:
    """What the learner is told."""
    return {"version": np.array(version, np.int64), "mean": np.array(mean, np.float64)}


def run(context: Context, training: Training) -> None:
    """Judge until told to stop."""
    store = open_store(context.storage) if context.storage else None
    wish = training.evaluation
    environments = make(
        training.env, min(wish.episodes, 16), seed=seed_of(training.seed, _SEED), options=training.options
    )
    try:
        config = algorithm(training.algorithm).settings(training)
        judge = _Judge(environments, policy_for(environments.spaces, config.network), store, training)
        with (
            ParameterReader(context, "parameters") as parameters,
            TrajectoryWriter(context, EVALUATIONS, Schema.of(verdict())) as writer,
        ):
            while True:
                newest = parameters.wait()
                writer.write(verdict(newest.version, judge.judge(newest.version, newest.arrays)))
                context.sleep(wish.every)
    finally:
        environments.close()


class _Judge:
    """Plays versions of a policy, each with new seeds, and keeps what came out."""

    def __init__(
        self, environments: Environments, policy: Policy, store: Store | None, training: Training
    ) -> None:
        self._environments = environments
        self._policy = policy
        self._store = store
        self._training = training
        self._videos = training.evaluation.videos
        self._number = 0

    def judge(self, version: int, arrays: Snapshot) -> float:
        """The mean return of a version."""
        begun = time.monotonic()
        self._policy.load(arrays)
        self._number += 1
        wish = self._training.evaluation
        played, videos = self._play(version)
        log.info(
            "version %s: mean return %.1f of %s episodes%s",
            version,
            played.mean,
            wish.episodes,
            f", {played.cut} of them cut short after {wish.longest:,} steps" if played.cut else "",
        )
        if self._store is not None:
            told = {
                "version": version,
                "returns": played.returns,
                "steps": played.steps,
                "mean": played.mean,
                "cut": played.cut,
                "videos": [video.key for video in videos],
                "seconds": round(time.monotonic() - begun, 3),
                "time": time.time(),
            }
            try:
                self._store.put(f"evaluations/{version:012d}.json", json.dumps(told).encode())
            except RetryError as error:
                # The learner hears the verdict all the same: a store that is away for a while stops no training.
                log.error("%s; the result of version %s is not stored", error.message, version)
        return played.mean

    def _play(self, version: int) -> tuple[Played, list[Video]]:
        training = self._training
        seed = seed_of(training.seed, _SEED, self._number)
        if self._videos and self._store is not None:
            try:
                return play_and_record(
                    self._environments,
                    training.env,
                    self._policy,
                    self._store,
                    episodes=training.evaluation.episodes,
                    videos=self._videos,
                    name=f"{version:012d}",
                    seed=seed,
                    options=training.options,
                    longest=training.evaluation.longest,
                )
            except UserError as error:
                # Without pictures it is still an evaluation, and the training waits for it.
                log.error("no videos from now on: %s", error)
                self._videos = 0
            except RetryError as error:
                log.error("%s; version %s is judged without a video", error.message, version)
        wish = training.evaluation
        played = play(self._environments, self._policy, wish.episodes, seed=seed, longest=wish.longest)
        return played, []
