"""A training as its learner sees it: progress, stop conditions, checkpoints and metrics."""

from __future__ import annotations

import json
import logging
import math
import platform
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
import numpy as np

from callsheet.errors import RetryError, UserError
from callsheet.metrics.wellknown import Learning
from callsheet.rl.algorithms.learner import Learner
from callsheet.rl.checkpoints import FOLDER, Checkpoint, Checkpoints, newest
from callsheet.rl.learning_curve import LearningCurve, RecentEpisodes
from callsheet.rl.settings import Training
from callsheet.rl.spaces import Spaces
from callsheet.runtime import Context
from callsheet.store import Fenced, open_store

log = logging.getLogger("callsheet.rl")
RESULT = "result.json"
_CURVE_INTERVAL = 5.0
"""Seconds between two writes of the learning curve."""
_LOG_INTERVAL = 10.0
"""Seconds between two lines about the progress."""


class Session:
    """The learner calls `record_update` after each update, until `stop_reason` returns one."""

    def __init__(self, context: Context, training: Training, learner: Learner, spaces: Spaces) -> None:
        if not context.storage:
            raise UserError(
                "there is no storage for checkpoints",
                fix="set `storage: s3://bucket/prefix` in the experiment's file",
            )
        self._training = training
        self._learner = learner
        self._spaces = spaces
        self._store = open_store(context.storage)
        self._checkpoints = Checkpoints(self._store, keep=training.checkpoints.keep, order=context.attempt)
        self.episodes = RecentEpisodes()
        self.steps = 0
        """Environment steps learned from."""
        self.updates = 0
        self.evaluation: float | None = None
        """Mean return of the newest evaluation."""
        self._evaluated_version = 0
        self._resumed_from: str | None = None
        self._seconds_before = 0.0
        self._started_at = time.monotonic()
        self._hunger = math.nan
        self._checkpoint_at = self._curve_at = self._logged_at = self._started_at
        self._checkpoint_updates = -1
        self._newest_point: dict[str, Any] = {}
        """Of the curve. It may have been too recent to be added."""
        self._curve = LearningCurve(self._store)
        self.metrics = Learning(context.metrics)
        self.metrics.left.follow(self._seconds_left)
        self.metrics.done.follow(lambda: self.steps)

    @property
    def seconds(self) -> float:
        """Training time over all attempts."""
        return self._seconds_before + time.monotonic() - self._started_at

    @property
    def progress(self) -> float:
        """How much of the training is done, from 0 to 1; 0 if it has no limit of steps or seconds."""
        stop = self._training.stop
        shares = [self.steps / stop.steps if stop.steps else 0.0]
        shares.append(self.seconds / stop.seconds if stop.seconds else 0.0)
        return min(1.0, max(shares))

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint must have in common with this training."""
        return {"algorithm": self._training.algorithm, "env": self._training.env}

    def resume(self) -> bool:
        """Continue from the newest valid checkpoint; returns whether there was one."""
        checkpoint = self._checkpoints.load(self.identity)
        own = checkpoint is not None
        if checkpoint is None and self._training.resume:
            checkpoint = self._from_another_run(self._training.resume)
        if checkpoint is None:
            return False
        try:
            self._learner.restore(checkpoint.state)
        except (KeyError, ValueError, UserError) as error:
            raise UserError(
                f"the checkpoint {checkpoint.name} does not fit: {error}",
                fix="if you changed the network, give the training another name or storage",
            ) from None
        self._resumed_from = checkpoint.name
        info = checkpoint.info
        self.steps, self.updates = int(info["steps"]), int(info["updates"])
        self._seconds_before, self.evaluation = float(info["seconds"]), info.get("evaluation")
        self._evaluated_version = int(info.get("evaluated", 0))
        self.episodes.add(np.array(info["returns"], float), np.array(info["lengths"], int))
        # Another run's checkpoint is not saved here yet.
        self._checkpoint_updates = self.updates if own else -1
        self._started_at = time.monotonic()
        self._curve.truncate(self.steps)
        log.warning("resumed from %s: %s steps, %s updates", checkpoint.name, f"{self.steps:,}", self.updates)
        return True

    def _from_another_run(self, url: str) -> Checkpoint:
        """The newest checkpoint of another run. Its curve becomes ours."""
        store = open_store(url)
        checkpoint = newest(store.sub(FOLDER), self.identity)
        if checkpoint is None:
            raise UserError(
                f"there is no checkpoint in {url} to resume from", fix="remove `resume`, or name another run"
            )
        self._curve.points = LearningCurve(store).points
        return checkpoint

    def stop_reason(self) -> str | None:
        """Why the training is done; None while it is not."""
        stop = self._training.stop
        if stop.sampled is not None and (self.episodes.mean or -np.inf) >= stop.sampled:
            return f"the last 20 sampled episodes had a mean return of {self.episodes.mean:.1f}"
        if stop.goal is not None and self.evaluation is not None and self.evaluation >= stop.goal:
            return f"an evaluation had a mean return of {self.evaluation:.1f}"
        if stop.steps is not None and self.steps >= stop.steps:
            return f"{self.steps:,} steps"
        if stop.seconds is not None and self.seconds >= stop.seconds:
            return f"{self.seconds:.0f} seconds"
        return None

    def record_update(
        self, steps: int, metrics: Mapping[str, float], *, waited: float, took: float, lag: float
    ) -> None:
        """After an update from this many new steps; `waited` and `took` are seconds."""
        self.steps += steps
        self.updates += 1
        share = waited / max(waited + took, 1e-9)
        self._hunger = share if math.isnan(self._hunger) else self._hunger + 0.05 * (share - self._hunger)
        now = time.monotonic()
        self.metrics.steps.add(steps)
        self.metrics.updates.add()
        self.metrics.update_seconds.observe(took)
        self.metrics.loss.set(metrics.get("loss", math.nan))
        self.metrics.hunger.set(self._hunger)
        self.metrics.staleness.set(lag)
        mean = self.episodes.mean
        if mean is not None:
            self.metrics.episode_return.set(mean)
        self._newest_point = {
            "steps": self.steps,
            "updates": self.updates,
            "return": mean,
            "episodes": self.episodes.count,
            "lag": lag,
            "hunger": self._hunger,
            **metrics,
        }
        self._curve.add(self.seconds, self._newest_point)
        if now - self._curve_at > _CURVE_INTERVAL:
            self._curve_at = now
            self._attempt(self._curve.save)
        if now - self._checkpoint_at > self._training.checkpoints.every:
            self._attempt(self.checkpoint)
        if now - self._logged_at > _LOG_INTERVAL:
            self._logged_at = now
            shown = "-" if mean is None else f"{mean:.1f}"
            log.info("%s steps, %s updates, return %s", f"{self.steps:,}", self.updates, shown)

    def record_evaluation(self, version: int, mean: float) -> None:
        """The evaluator's result for a version."""
        self.evaluation, self._evaluated_version = mean, version
        self.metrics.evaluation.set(mean)
        self._curve.add(
            self.seconds, {"steps": self.steps, "evaluation": mean, "version": version}, always=True
        )

    def checkpoint(self) -> None:
        """Write a checkpoint, unless nothing was learned since the last one."""
        self._checkpoint_at = time.monotonic()
        if self._checkpoint_updates == self.updates:
            return
        info: dict[str, Any] = {
            "identity": self.identity,
            "steps": self.steps,
            "updates": self.updates,
            "seconds": self.seconds,
            "returns": list(self.episodes.returns),
            "lengths": list(self.episodes.steps),
            **self._description(),
        }
        if self.evaluation is not None:
            info |= {"evaluation": self.evaluation, "evaluated": self._evaluated_version}
        start = time.monotonic()
        size = self._checkpoints.save(
            f"step-{self.steps:012d}", self._learner.state(), self._learner.snapshot(), info
        )
        self._checkpoint_updates = self.updates
        self.metrics.checkpoint_seconds.observe(time.monotonic() - start)
        self.metrics.checkpoint_bytes.set(size)
        self.metrics.checkpoint_steps.set(self.steps)

    def _attempt(self, write: Callable[[], None]) -> None:
        """Write something; continue if the store is unavailable, but not if another learner has taken over."""
        try:
            write()
        except Fenced:
            raise
        except RetryError as error:
            self.metrics.checkpoint_failures.add()
            log.error("%s; the training continues and will retry", error.message)

    def close(self, reason: str | None) -> None:
        """Save everything at the end, or when stopped early (no reason)."""
        self.checkpoint()
        if self._newest_point and self._curve.points[-1].get("updates") != self.updates:
            self._curve.add(self.seconds, self._newest_point, always=True)
        self._curve.save()
        if reason is not None:
            self._store.put(RESULT, json.dumps(self.result(reason), indent=2).encode())

    def result(self, reason: str) -> dict[str, Any]:
        """The outcome, and what produced it."""
        return {
            "ended": reason,
            "steps": self.steps,
            "updates": self.updates,
            "seconds": round(self.seconds, 3),
            "return": self.episodes.mean,
            "evaluation": self.evaluation,
            "resumed_from": self._resumed_from,
            "seed": self._training.seed,
            **self._description(),
        }

    def _description(self) -> dict[str, Any]:
        """The training, for checkpoints and results."""
        return {
            "training": json.loads(self._training.encode()),
            "spaces": msgspec.to_builtins(self._spaces),
            "versions": versions(),
        }

    def _seconds_left(self) -> float:
        """Estimated from the progress; NaN if there is no limit of steps or seconds."""
        done = self.progress
        return round(self.seconds * (1 - done) / done) if done else math.nan


def versions() -> dict[str, str]:
    """The versions of everything that a result depends on."""
    installed = {"python": platform.python_version()}
    for name in ("callsheet", "numpy", "torch", "gymnasium", "ale-py", "mujoco", "envpool"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed
