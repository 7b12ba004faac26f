"""A trained policy in one's own program: three lines, and no PyTorch for small networks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from stored_training import keep

from callsheet.errors import UserError
from callsheet.rl import envs, load_policy
from callsheet.rl.checkpoints import Checkpoints, find_policy
from callsheet.rl.envs import spaces_of
from callsheet.rl.spaces import Spaces
from callsheet.store import open_store


def test_a_policy_says_what_to_do_as_an_integer(tmp_path: Path) -> None:
    policy = load_policy(str(keep(tmp_path, "CartPole-v1")))
    action = policy(np.array([0.0, 0.1, 0.0, -0.1]))
    assert type(action) is int
    assert action in (0, 1)
    assert policy(np.array([0.0, 0.1, 0.0, -0.1])) == action
    assert policy.training.env == "CartPole-v1"
    assert (policy.checkpoint, policy.info["steps"]) == ("step-000000000010", 10)


def test_a_policy_that_draws_repeats_itself_with_a_seed_alone(tmp_path: Path) -> None:
    keep(tmp_path, "CartPole-v1")
    drawn = [
        [policy(np.zeros(4)) for _ in range(50)]
        for policy in (load_policy(str(tmp_path), sampled=True, seed=seed) for seed in (1, 1, 2))
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_continuous_actions_stay_within_their_limits(tmp_path: Path) -> None:
    policy = load_policy(str(keep(tmp_path, "Pendulum-v1")), sampled=True, seed=1)
    actions = np.array([policy(np.array([1.0, 0.0, 0.0], np.float32)) for _ in range(500)])
    assert actions.shape == (500, 1)
    assert actions.dtype == np.float32
    assert np.abs(actions).max() <= 2


def test_the_checkpoint_tells_what_the_environment_looks_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, "CartPole-v1")
    made: list[str] = []

    def look(env: str, **more: object) -> Spaces:
        made.append(env)
        return spaces_of(env)

    monkeypatch.setattr(envs, "spaces_of", look)
    told = load_policy(str(tmp_path)).spaces
    assert told == spaces_of("CartPole-v1")
    assert not made, "the environment need not be there"
    store = open_store(str(tmp_path))
    arrays, found = find_policy(store)
    before = {key: value for key, value in found.info.items() if key != "spaces"}
    Checkpoints(store, keep=2, order=1).save("older", {}, arrays, before)
    assert load_policy(str(tmp_path), checkpoint="older").spaces == told
    assert made == ["CartPole-v1"], "checkpoints of older versions do not tell"


def test_a_choice_is_given_as_the_environment_gives_it(tmp_path: Path) -> None:
    policy = load_policy(str(keep(tmp_path, "FrozenLake-v1")))
    assert policy(3) in range(4)
    assert policy(np.int64(15)) in range(4)


def test_a_policy_with_a_memory_forgets_when_an_episode_begins(tmp_path: Path) -> None:
    policy = load_policy(str(keep(tmp_path, "CartPole-v1", network={"lstm": 8})))
    assert policy.policy.state_size > 0
    for _ in range(3):
        policy(np.ones(4))
    assert policy._state is not None
    assert np.abs(policy._state).max() > 0
    policy.reset()
    assert np.abs(policy._state).max() == 0


def test_an_observation_of_another_shape_is_refused(tmp_path: Path) -> None:
    policy = load_policy(str(keep(tmp_path, "CartPole-v1")))
    with pytest.raises(UserError, match=r"has shape \(3,\), but the policy expects \(4,\)"):
        policy(np.zeros(3))


def test_a_folder_without_a_training_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no checkpoint in"):
        load_policy(str(tmp_path))


def test_a_damaged_policy_names_the_way_out(tmp_path: Path) -> None:
    (part,) = keep(tmp_path, "CartPole-v1").glob("checkpoints/*/policy.safetensors")
    damaged = bytearray(part.read_bytes())
    damaged[-1] ^= 1
    part.write_bytes(damaged)
    with pytest.raises(UserError, match="is damaged") as error:
        load_policy(str(tmp_path))
    assert "checkpoint='newest'" in error.value.fix


def test_neither_importing_nor_using_a_small_policy_loads_pytorch(tmp_path: Path) -> None:
    keep(tmp_path, "CartPole-v1")
    program = f"""
import sys
import callsheet.rl
assert "numpy" not in sys.modules
from callsheet.rl import load_policy
print(load_policy({str(tmp_path)!r})([0.0, 0.0, 0.0, 0.0]), "torch" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split()[1] == "False"
