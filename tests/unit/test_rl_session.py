"""A training is taken up where it was: by its next attempt, by another run, and despite a damaged checkpoint."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from callsheet.errors import UserError
from callsheet.rl.session import Session
from callsheet.rl.settings import Stop, Training
from callsheet.rl.spaces import Array, Discrete, Spaces
from callsheet.runtime import Context

SPACES = Spaces({"observation": Array("float32", (4,))}, Discrete(2), family="classic")
TRAINING = Training(algorithm="ppo", env="CartPole-v1", stop=Stop(steps=1000))


class Counting:
    """A learner that learns how often it was called."""

    def __init__(self) -> None:
        self.weights = {"calls": np.zeros(1, np.int64)}

    def update(self, batch: Mapping[str, np.ndarray]) -> Mapping[str, float]:
        self.weights["calls"] += 1
        return {"loss": 0.5}

    def snapshot(self) -> dict[str, np.ndarray]:
        return self.weights

    state = snapshot

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.weights = {"calls": np.array(arrays["calls"])}


class Trained:
    """A session with its learner, in a folder."""

    def __init__(self, folder: Path, training: Training = TRAINING, attempt: int = 0) -> None:
        self.context = Context(storage=folder.as_uri(), plaintext=True, attempt=attempt)
        self.learner = Counting()
        self.session = Session(self.context, training, self.learner, SPACES)

    def learn(self, updates: int) -> None:
        for _ in range(updates):
            told = self.learner.update({})
            self.session.episodes.add(np.full(20, float(self.session.updates)), np.ones(20, int))
            self.session.record_update(100, told, waited=1.0, took=3.0, lag=1.0)

    @property
    def calls(self) -> int:
        return int(self.learner.weights["calls"][0])


@pytest.fixture
def first(tmp_path: Path) -> Trained:
    """A training with two checkpoints, after 2 and after 5 updates."""
    trained = Trained(tmp_path / "first")
    trained.learn(2)
    trained.session.close(None)
    trained.learn(3)
    trained.session.close(None)
    return trained


@pytest.mark.usefixtures("first")
def test_the_next_attempt_goes_on_from_the_newest_checkpoint(tmp_path: Path) -> None:
    again = Trained(tmp_path / "first", attempt=1)
    assert again.session.resume()
    assert (again.session.steps, again.session.updates, again.calls) == (500, 5, 5)
    assert again.session.episodes.mean == 4.0


@pytest.mark.usefixtures("first")
def test_a_damaged_checkpoint_is_told_loudly_and_the_one_before_it_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = next((tmp_path / "first/checkpoints").glob("step-000000000500*/state.safetensors"))
    damaged = bytearray(newest.read_bytes())
    damaged[-1] ^= 1
    newest.write_bytes(damaged)
    again = Trained(tmp_path / "first", attempt=1)
    with caplog.at_level(logging.WARNING):
        assert again.session.resume()
    assert (again.session.steps, again.calls) == (200, 2)
    assert "'step-000000000500'" in caplog.text
    assert "is damaged" in caplog.text
    assert "using the one before it" in caplog.text


@pytest.mark.usefixtures("first")
def test_a_checkpoint_of_another_environment_is_refused(tmp_path: Path) -> None:
    other = Training(algorithm="ppo", env="Acrobot-v1")
    with pytest.raises(UserError, match="env was 'CartPole-v1', is 'Acrobot-v1'"):
        Trained(tmp_path / "first", other, attempt=1).session.resume()


@pytest.mark.usefixtures("first")
def test_another_run_goes_on_from_a_run_that_has_ended_and_keeps_a_checkpoint_of_its_own(
    tmp_path: Path,
) -> None:
    resumed = Training(algorithm="ppo", env="CartPole-v1", resume=(tmp_path / "first").as_uri())
    second = Trained(tmp_path / "second", resumed)
    assert second.session.resume()
    assert (second.session.steps, second.calls) == (500, 5)
    second.session.close("it was over at once")
    assert list((tmp_path / "second/checkpoints").glob("step-000000000500*"))
    second.learn(1)
    second.session.close(None)
    third = Trained(tmp_path / "second", resumed, attempt=1)
    assert third.session.resume()
    assert third.session.steps == 600, "its own checkpoint comes before that of the other run"


def test_a_run_without_checkpoints_cannot_be_gone_on_from(tmp_path: Path) -> None:
    resumed = Training(algorithm="ppo", env="CartPole-v1", resume=(tmp_path / "nothing").as_uri())
    with pytest.raises(UserError, match="there is no checkpoint in"):
        Trained(tmp_path / "second", resumed).session.resume()


def test_what_is_not_known_yet_is_no_number(tmp_path: Path) -> None:
    trained = Trained(tmp_path / "first", Training(algorithm="ppo", env="CartPole-v1"))
    metrics = trained.session.metrics
    unknown = (metrics.episode_return, metrics.evaluation, metrics.hunger, metrics.staleness, metrics.left)
    assert all(math.isnan(metric.value) for metric in unknown)
    trained.learn(1)
    assert metrics.hunger.value == 0.25
    assert metrics.episode_return.value == 0.0
    assert math.isnan(metrics.left.value), "nothing says how long it will take"
    assert metrics.done.value == 100


def test_time_left_follows_from_the_steps_that_are_left(tmp_path: Path) -> None:
    trained = Trained(tmp_path / "first")
    trained.learn(5)
    assert trained.session.metrics.left.value == pytest.approx(trained.session.seconds, abs=1)
