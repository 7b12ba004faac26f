"""An evaluator whose store is away: the learner hears its verdicts all the same."""

from __future__ import annotations

import logging

import pytest

from callsheet.rl.acting.policy import policy_for
from callsheet.rl.algorithms import algorithm
from callsheet.rl.envs import make
from callsheet.rl.roles.evaluator import _Evaluator
from callsheet.rl.settings import Evaluation, Training
from callsheet.store import open_store


def test_a_store_that_is_away_costs_a_result_and_not_the_evaluator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": "b",
        "ENDPOINT_URL": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    training = Training(algorithm="ppo", env="CartPole-v1", evaluation=Evaluation(episodes=2, longest=50))
    chosen = algorithm("ppo")
    environments = make("CartPole-v1", 2, seed=1, isolate=False)
    try:
        spaces = environments.spaces
        policy = policy_for(spaces, chosen.settings(training).network)
        arrays = chosen.make_learner(spaces, training, "cpu").snapshot()
        judge = _Evaluator(environments, policy, open_store("s3://results/x", patience=0.5), training)
        with caplog.at_level(logging.ERROR):
            assert judge.evaluate(7, arrays) > 0
    finally:
        environments.close()
    (told,) = [record.getMessage() for record in caplog.records]
    assert (
        "s3://results at http://127.0.0.1:9 cannot be reached; the result of version 7 is not stored" in told
    )
