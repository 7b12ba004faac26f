"""A training as an experiment: algorithms that learn from a replay have one, and its options are their settings."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from callsheet.errors import UserError
from callsheet.recipes.training import Wishes, experiment
from callsheet.rl.settings import Checkpoints, Training


def roles(training: Training, **wishes: Any) -> dict[str, dict[str, Any]]:
    found = yaml.safe_load(experiment(training, Wishes(**wishes)))
    return {role["name"]: role for role in found["spec"]["roles"]}


def options(role: dict[str, Any]) -> dict[str, str]:
    words = role["command"][3:]
    return {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}


DQN = Training(
    algorithm="dqn",
    env="CartPole-v1",
    actors=3,
    seed=5,
    checkpoints=Checkpoints(every=7),
    settings={
        "capacity": 1000,
        "warmup": 100,
        "batch": 32,
        "updates_per_step": 0.5,
        "environments": 2,
        "rollout": 10,
    },
)


def test_the_replay_is_as_the_algorithms_settings_say() -> None:
    replay = roles(DQN)["replay"]
    assert replay["command"][:3] == ["python", "-m", "callsheet.runtime.replay"]
    assert replay["binds"] == [{"name": "replay"}]
    assert options(replay) == {
        "kind": "prioritised",
        "alpha": "0.6",
        "items": "1000",
        "min-size": "100",
        "samples-per-insert": "16",
        "tolerance": "1920",
        "snapshot-every": "7",
        "seed": "5",
    }


def test_shards_share_what_there_is_to_hold() -> None:
    replay = roles(DQN, replay_shards=4)["replay"]
    assert replay["replicas"] == 4
    told = options(replay)
    assert (told["items"], told["min-size"], told["tolerance"]) == ("250", "25", "480")
    assert told["samples-per-insert"] == "16"


@pytest.mark.parametrize("shards", [0, 101])
def test_more_shards_than_transitions_are_refused(shards: int) -> None:
    with pytest.raises(UserError, match=f"by {shards} shards"):
        roles(DQN, replay_shards=shards)


def test_sac_draws_with_equal_chances() -> None:
    told = options(roles(Training(algorithm="sac", env="Pendulum-v1"))["replay"])
    assert told["kind"] == "uniform"
    assert "alpha" not in told


def test_roles_are_wired_to_the_replay_or_to_each_other() -> None:
    with_replay = roles(DQN)
    assert with_replay["actor"]["connects"] == ["replay", "episodes", "parameters"]
    assert with_replay["learner"]["connects"] == ["replay"]
    assert {"name": "episodes"} in with_replay["learner"]["binds"]
    without = roles(Training(algorithm="impala", env="CartPole-v1"))
    assert "replay" not in without
    assert without["actor"]["connects"] == ["trajectories", "parameters"]
