"""A training as its learner sees it: how far it is, when it ends, what is kept of it."""

from __future__ import annotations

import json
import logging
import math
import platform
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
import numpy as np

from callsheet.errors import RetryError, UserError
from callsheet.metrics.wellknown import Learning
from callsheet.rl.algorithms.learner import Learner
from callsheet.rl.checkpoints import FOLDER, Checkpoint, Checkpoints, newest
from callsheet.rl.learning_curve import Curve, Episodes
from callsheet.rl.settings import Training
from callsheet.rl.spaces import Spaces
from callsheet.runtime import Context
from callsheet.store import Fenced, open_store

log = logging.getLogger("callsheet.rl")
RESULT = "result.json"
_SAVE = 5.0
"""Seconds between two copies of the learning curve."""
_SAY = 10.0
"""Seconds between two lines about the progress."""


class Session:
    """Counts, keeps and ends. The learner's loop calls `learned` after each update, until `over` says why it ends."""

    def __init__(self, context: Context, training: Training, learner: Learner, spaces: Spaces) -> None:
        if not context.storage:
            raise UserError(
                "there is no storage for checkpoints",
                fix="say `storage: s3://bucket/prefix` in the experiment's file",
            )
        self._training = training
        self._learner = learner
        self._spaces = spaces
        self._store = open_store(context.storage)
        self._checkpoints = Checkpoints(self._store, keep=training.checkpoints.keep, order=context.attempt)
        self.episodes = Episodes()
        self.steps = 0
        """Environment steps learned from."""
        self.updates = 0
        self.evaluation: float | None = None
        """The evaluator's newest verdict."""
        self._resumed: str | None = None
        self._judged = 0
        """Which version it was about."""
        self._before = 0.0
        self._began = time.monotonic()
        self._waited = 0.0
        self._hunger = math.nan
        self._saved_at = self._curve_at = self._said_at = self._began
        self._saved_updates = -1
        self._newest: dict[str, Any] = {}
        """The newest point of the curve, which may have been too near to the one before."""
        self._curve = Curve(self._store)
        self.metrics = Learning(context.metrics)
        self.metrics.left.follow(self._left)
        self.metrics.done.follow(lambda: self.steps)

    @property
    def seconds(self) -> float:
        """Spent training, over all attempts."""
        return self._before + time.monotonic() - self._began

    @property
    def progress(self) -> float:
        """The part of the training that is over, where the settings tell how long it is; else 0."""
        stop = self._training.stop
        parts = [self.steps / stop.steps if stop.steps else 0.0]
        parts.append(self.seconds / stop.seconds if stop.seconds else 0.0)
        return min(1.0, max(parts))

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same for a checkpoint to be ours."""
        return {"algorithm": self._training.algorithm, "env": self._training.env}

    def resume(self) -> bool:
        """Go on from the newest good checkpoint; whether there was one."""
        found = self._checkpoints.load(self.identity)
        own = found is not None
        if found is None and self._training.resume:
            found = self._of_another_run(self._training.resume)
        if found is None:
            return False
        try:
            self._learner.restore(found.state)
        except (KeyError, ValueError, UserError) as error:
            raise UserError(
                f"the checkpoint {found.name} does not fit: {error}",
                fix="was the network changed? Give the training a name or a storage of its own",
            ) from None
        self._resumed = found.name
        info = found.info
        self.steps, self.updates = int(info["steps"]), int(info["updates"])
        self._before, self.evaluation = float(info["seconds"]), info.get("evaluation")
        self._judged = int(info.get("evaluated", 0))
        self.episodes.add(np.array(info["returns"], float), np.array(info["lengths"], int))
        # What another run has kept is not yet kept here.
        self._saved_updates = self.updates if own else -1
        self._began = time.monotonic()
        self._curve.forget_after(self.steps)
        log.warning("went on from %s: %s steps, %s updates", found.name, f"{self.steps:,}", self.updates)
        return True

    def _of_another_run(self, url: str) -> Checkpoint:
        """Begin where that run ended: its newest checkpoint, and its curve up to there."""
        store = open_store(url)
        found = newest(store.sub(FOLDER), self.identity)
        if found is None:
            raise UserError(
                f"there is no checkpoint in {url} to go on from",
                fix="leave `resume` out, or name another run",
            )
        self._curve.points = Curve(store).points
        return found

    def over(self) -> str | None:
        """Why the training has ended; None: it goes on."""
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

    def learned(
        self, steps: int, told: Mapping[str, float], *, waited: float, took: float, lag: float
    ) -> None:
        """After an update from so many new steps; `waited` and `took` are seconds."""
        self.steps += steps
        self.updates += 1
        share = waited / max(waited + took, 1e-9)
        self._hunger = share if math.isnan(self._hunger) else self._hunger + 0.05 * (share - self._hunger)
        now = time.monotonic()
        metrics = self.metrics
        metrics.steps.add(steps)
        metrics.updates.add()
        metrics.update_seconds.observe(took)
        metrics.loss.set(told.get("loss", math.nan))
        metrics.hunger.set(self._hunger)
        metrics.staleness.set(lag)
        mean = self.episodes.mean
        if mean is not None:
            metrics.episode_return.set(mean)
        point = {
            "steps": self.steps,
            "updates": self.updates,
            "return": mean,
            "episodes": self.episodes.count,
        }
        self._newest = {**point, "lag": lag, "hunger": self._hunger, **told}
        self._curve.add(self.seconds, self._newest)
        if now - self._curve_at > _SAVE:
            self._curve_at = now
            self._try(self._curve.save)
        if now - self._saved_at > self._training.checkpoints.every:
            self._try(self.checkpoint)
        if now - self._said_at > _SAY:
            self._said_at = now
            told_return = "-" if mean is None else f"{mean:.1f}"
            log.info("%s steps, %s updates, return %s", f"{self.steps:,}", self.updates, told_return)

    def evaluated(self, version: int, mean: float) -> None:
        """The evaluator has judged a version."""
        self.evaluation, self._judged = mean, version
        self.metrics.evaluation.set(mean)
        self._curve.add(
            self.seconds, {"steps": self.steps, "evaluation": mean, "version": version}, always=True
        )

    def checkpoint(self) -> None:
        """Write one now, unless nothing was learned since the last."""
        self._saved_at = time.monotonic()
        if self._saved_updates == self.updates:
            return
        info: dict[str, Any] = {
            "identity": self.identity,
            "training": json.loads(self._training.encode()),
            "steps": self.steps,
            "updates": self.updates,
            "seconds": self.seconds,
            "returns": list(self.episodes.returns),
            "lengths": list(self.episodes.steps),
            "spaces": msgspec.to_builtins(self._spaces),
            "versions": versions(),
        }
        if self.evaluation is not None:
            info |= {"evaluation": self.evaluation, "evaluated": self._judged}
        begun = time.monotonic()
        size = self._checkpoints.save(
            f"step-{self.steps:012d}", self._learner.state(), self._learner.snapshot(), info
        )
        self._saved_updates = self.updates
        self.metrics.checkpoint_seconds.observe(time.monotonic() - begun)
        self.metrics.checkpoint_bytes.set(size)
        self.metrics.checkpoint_steps.set(self.steps)

    def _try(self, action: Any) -> None:
        """A store that is away for a while stops no training; a successor that has taken over does."""
        try:
            action()
        except Fenced:
            raise
        except RetryError as error:
            self.metrics.checkpoint_failures.add()
            log.error("%s; the training goes on and tries again", error.message)

    def close(self, reason: str | None) -> None:
        """The end, or a stop that was asked for: what was learned is kept."""
        self.checkpoint()
        if self._newest and self._curve.points[-1].get("updates") != self.updates:
            self._curve.add(self.seconds, self._newest, always=True)
        self._curve.save()
        if reason is not None:
            self._store.put(RESULT, json.dumps(self.result(reason), indent=2).encode())

    def result(self, reason: str) -> dict[str, Any]:
        """What came out of it, and what it was made with."""
        return {
            "ended": reason,
            "steps": self.steps,
            "updates": self.updates,
            "seconds": round(self.seconds, 3),
            "return": self.episodes.mean,
            "evaluation": self.evaluation,
            "resumed_from": self._resumed,
            "seed": self._training.seed,
            "training": json.loads(self._training.encode()),
            "spaces": msgspec.to_builtins(self._spaces),
            "versions": versions(),
        }

    def _left(self) -> float:
        """Seconds until the end, as far as the settings tell; NaN when they do not."""
        done = self.progress
        return round(self.seconds * (1 - done) / done) if done else math.nan


def versions() -> dict[str, str]:
    """Of all that a result depends on."""
    found = {"python": platform.python_version()}
    for name in ("callsheet", "numpy", "torch", "gymnasium", "ale-py", "mujoco", "envpool"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
