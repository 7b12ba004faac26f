"""Stored results of a training, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import spaces_of
from callsheet.rl.session import Session
from callsheet.rl.settings import Training
from callsheet.runtime import Context


def keep(folder: Path, env: str, **settings: Any) -> Path:
    """Results with one checkpoint of an untrained policy."""
    training = Training(algorithm="ppo", env=env, settings=settings)
    spaces = spaces_of(env)
    learner = algorithm("ppo").make_learner(spaces, training, "cpu")
    session = Session(Context(storage=folder.as_uri(), plaintext=True), training, learner, spaces)
    session.record_update(10, {}, waited=0.0, took=1.0, lag=0.0)
    session.close("enough")
    return folder
