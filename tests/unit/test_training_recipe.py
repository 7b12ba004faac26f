"""A training as an experiment: algorithms that learn from a replay have one, and its options are their settings."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

import msgspec
import pytest

from callsheet.errors import UserError
from callsheet.recipes.images import Images
from callsheet.recipes.training import RecipeOptions, experiment
from callsheet.rl.roles.learner import device
from callsheet.rl.settings import Checkpoints, Training
from callsheet.rl.spaces import Family
from callsheet.spec.dump import to_data


def roles(training: Training, **wishes: Any) -> dict[str, dict[str, Any]]:
    found = to_data(experiment(training, RecipeOptions(**wishes)))
    return {role["name"]: role for role in found["spec"]["roles"]}


def images(training: Training, wish: Images, **wishes: Any) -> dict[str, str]:
    """The image that each role runs in."""
    found = to_data(experiment(training, RecipeOptions(images=wish, **wishes)))["spec"]
    usual = found.get("image", "")
    return {role["name"]: role.get("image", usual) for role in found["roles"]}


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
        "kind": "prioritized",
        "alpha": "0.6",
        "items": "1000",
        "bytes": "6000000000",
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


OURS = Images(registry="registry.example.com/team")
SLIM = f"registry.example.com/team/callsheet:{version('callsheet')}"
TORCH = f"registry.example.com/team/callsheet-learner:{version('callsheet')}"


def test_without_a_wish_there_is_no_image() -> None:
    assert set(images(DQN, Images()).values()) == {""}


def test_pytorch_is_in_the_learners_image_alone() -> None:
    cartpole = msgspec.structs.replace(DQN, family="classic")
    assert images(cartpole, OURS) == {"learner": TORCH, "actor": SLIM, "replay": SLIM, "evaluator": SLIM}


@pytest.mark.parametrize(
    ("family", "network", "needs"),
    [
        ("classic", {}, False),
        ("mujoco", {}, False),
        ("atari", {}, True),
        ("atari", {"torso": "mlp"}, False),
        ("classic", {"lstm": 16}, True),
        ("atari", {"torso": "mlp", "lstm": 16}, True),
        ("other", {}, True),
        ("other", {"torso": "resnet"}, True),
        ("other", {"torso": "mlp"}, False),
    ],
)
def test_who_plays_has_pytorch_where_numpy_may_not_do(
    family: Family, network: dict[str, Any], needs: bool
) -> None:
    training = Training(algorithm="impala", env="x:y", family=family, settings={"network": network})
    player = TORCH if needs else SLIM
    assert images(training, OURS) == {"learner": TORCH, "actor": player, "evaluator": player}


def test_with_a_policy_server_actors_never_need_pytorch_and_the_server_does_with_a_gpu() -> None:
    sees = Training(algorithm="impala", env="x:y", family="atari", inference="central")
    assert images(sees, OURS) == {"learner": TORCH, "actor": SLIM, "policy": TORCH, "evaluator": TORCH}
    counts = msgspec.structs.replace(sees, family="classic")
    assert images(counts, OURS)["policy"] == SLIM
    assert images(counts, OURS, gpus=1)["policy"] == TORCH


def test_an_image_of_ones_own_is_for_all_roles_or_for_those_that_do_not_learn() -> None:
    pong = Training(algorithm="dqn", env="x:y", family="atari")
    all_of_them = ("learner", "actor", "replay", "evaluator")
    ours = Images(registry="r", learner="mine:1")
    assert images(pong, ours) == dict.fromkeys(all_of_them, "mine:1")
    both = images(pong, Images(registry="r", learner="mine:1", actors="small:1"))
    assert both == {"learner": "mine:1"} | dict.fromkeys(all_of_them[1:], "small:1")
    small = images(pong, Images(registry="registry.example.com/team", actors="small:1"))
    assert small == {"learner": TORCH} | dict.fromkeys(all_of_them[1:], "small:1")


@pytest.mark.parametrize(
    "registry", ["https://registry.example.com", "Registry", "a b", "/", "a//b", "a:tag"]
)
def test_what_is_no_registry_is_refused(registry: str) -> None:
    with pytest.raises(UserError, match="is not the name of a registry"):
        images(DQN, Images(registry=registry))


@pytest.mark.parametrize("registry", ["localhost:5000", "10.0.0.1:5000/a/b", "team", "registry.example.com/"])
def test_a_registry_may_have_a_port_and_a_path(registry: str) -> None:
    named = images(DQN, Images(registry=registry))
    assert named["replay"] == f"{registry.rstrip('/')}/callsheet:{version('callsheet')}"


def test_a_policy_server_without_pytorch_answers_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert device() == "cpu"


def test_curves_are_served_by_a_role_of_its_own_that_people_reach() -> None:
    assert "tensorboard" not in roles(DQN)
    found = roles(DQN, tensorboard=True)["tensorboard"]
    assert found["command"] == ["python", "-m", "callsheet.rl.roles", "tensorboard", "{files.train.json}"]
    assert found["exposes"] == [{"name": "tensorboard"}]
    served = images(DQN, Images(registry="r.example.com"), tensorboard=True)["tensorboard"]
    assert served.startswith("r.example.com/callsheet-learner:"), "where TensorBoard is installed"


def test_the_replay_is_a_server_that_always_comes_back() -> None:
    policies = {name: role["restart"]["policy"] for name, role in roles(DQN).items()}
    assert policies.pop("replay") == "Always"
    assert set(policies.values()) == {"OnFailure"}
