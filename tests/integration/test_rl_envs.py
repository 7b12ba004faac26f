"""Many environments at once: where episodes begin and end, masks, seeds, pictures, and mistakes in their names."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from local_runs import PROGRAMS

from callsheet.errors import UserError
from callsheet.rl.envs import Environments, Step, make, spaces_of
from callsheet.rl.spaces import Array, Continuous, Discrete


@pytest.fixture(autouse=True)
def simulators(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that users would have on their path."""
    monkeypatch.syspath_prepend(str(PROGRAMS))


@contextlib.contextmanager
def made(env: str, count: int = 1, seed: int = 0, **how: Any) -> Iterator[Environments]:
    environments = make(env, count, seed=seed, **how)
    try:
        yield environments
    finally:
        environments.close()


def zeros(environments: Environments) -> Any:
    action = environments.spaces.action
    if isinstance(action, Discrete):
        return np.zeros(environments.count, np.int64)
    return np.zeros((environments.count, action.size), np.float32)


def steps(environments: Environments, number: int) -> list[Step]:
    return [environments.step(zeros(environments)) for _ in range(number)]


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("ends", ["terminated", "truncated", "both"])
def test_an_episode_ends_with_its_own_last_observation_and_the_step_after_begins_the_next(
    ends: str, isolate: bool
) -> None:
    with made("simulators:Counting", 2, options={"length": 2, "ends": ends}, isolate=isolate) as envs:
        assert envs.reset()["observation"].tolist() == [[0, 0], [0, 0]]
        seen = [envs.step(np.array([2, 1])) for _ in range(4)]
    assert [step.observations["observation"][0].tolist() for step in seen] == [[0, 1], [0, 2], [1, 0], [1, 1]]
    assert [step.rewards.tolist() for step in seen] == [[2, 1], [2, 1], [0, 0], [2, 1]]
    # One that ends in both ways has come to its end: there is nothing to expect behind it.
    over, never = [False, True, False, False], [False] * 4
    assert [step.terminated[0] for step in seen] == (never if ends == "truncated" else over)
    assert [step.truncated[0] for step in seen] == (over if ends == "truncated" else never)
    assert [step.valid[0] for step in seen] == [True, True, False, True]
    assert [step.first[0] for step in seen] == [False, False, True, False]
    assert not any(step.broken.any() for step in seen)


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ("CartPole-v1", {"max_episode_steps": 5}),
        ("Pendulum-v1", {"max_episode_steps": 5}),
        ("ALE/Pong-v5", {"max_num_frames_per_episode": 40, "noop_max": 0}),
        ("InvertedPendulum-v5", {"max_episode_steps": 3}),
    ],
)
def test_a_limit_of_time_truncates_and_terminates_nothing(env: str, options: dict[str, Any]) -> None:
    with made(env, 2, options=options) as envs:
        envs.reset()
        seen = steps(envs, 16)
    assert not any(step.terminated.any() for step in seen)
    cut = [index for index, step in enumerate(seen) if step.truncated[0]]
    assert cut
    assert all(seen[index + 1].first[0] and not seen[index + 1].valid[0] for index in cut if index < 15)
    assert all(seen[index + 1].rewards[0] == 0 for index in cut if index < 15)


def test_environments_look_as_they_are() -> None:
    looks = {
        "CartPole-v1": ("classic", Discrete(2), {"observation": Array("float32", (4,))}),
        "Pendulum-v1": (
            "classic",
            Continuous((-2.0,), (2.0,)),
            {"observation": Array("float32", (3,), -8, 8)},
        ),
        "ALE/Pong-v5": ("atari", Discrete(6), {"observation": Array("uint8", (4, 84, 84), 0, 255)}),
        "PongNoFrameskip-v4": ("atari", Discrete(6), {"observation": Array("uint8", (4, 84, 84), 0, 255)}),
        "HalfCheetah-v5": (
            "mujoco",
            Continuous((-1.0,) * 6, (1.0,) * 6),
            {"observation": Array("float32", (17,))},
        ),
        "FrozenLake-v1": ("other", Discrete(4), {"observation": Array("float32", (16,), 0, 1)}),
        "simulators:Counted-v3": ("other", Discrete(4), {"observation": Array("float32", (2,))}),
    }
    for env, (family, action, observations) in looks.items():
        found = spaces_of(env)
        assert (found.family, found.action, found.observations) == (family, action, observations), env
        assert not found.masks


@pytest.mark.parametrize("isolate", [False, True])
def test_the_same_seed_gives_the_same_episodes_however_many_processes_there_are(isolate: bool) -> None:
    def episode(seed: int, processes: int = 1, again: int | None = None) -> Any:
        with made("simulators:Chance", 3, seed, isolate=isolate, processes=processes) as envs:
            begin = envs.reset(again)["observation"]
            return np.stack([begin, *(step.observations["observation"] for step in steps(envs, 6))])

    once = episode(5)
    assert np.array_equal(once, episode(5, processes=3))
    assert np.array_equal(once, episode(9, again=5))
    assert not np.array_equal(once, episode(6))
    # Every environment has chances of its own, and so have those of the next actor.
    assert len(np.unique(np.concatenate([once, episode(6)], axis=1)[0], axis=0)) == 6


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "ALE/Breakout-v5", "InvertedPendulum-v5"])
def test_seeds_are_heeded_by_every_kind_of_environment(env: str) -> None:
    def sums(seed: int) -> list[float]:
        with made(env, 3, seed) as envs:
            rng = np.random.default_rng(0)
            total = [envs.reset()]
            action = envs.spaces.action
            for _ in range(20):
                chosen = (
                    rng.integers(0, action.n, 3)
                    if isinstance(action, Discrete)
                    else rng.normal(size=(3, action.size))
                )
                total.append(envs.step(chosen).observations)
            return [float(each["observation"].astype(np.float64).sum()) for each in total]

    assert sums(1) == sums(1) != sums(2)


def test_a_reset_without_a_seed_goes_on_with_chance() -> None:
    with made("Pendulum-v1", 2) as envs:
        begin, next_one = envs.reset()["observation"], envs.reset()["observation"]
        assert not np.array_equal(begin, next_one)
        assert np.array_equal(envs.reset(0)["observation"], begin)


@pytest.mark.parametrize("env", ["simulators:Masked", "simulators:MaskedObservation", "simulators:vector"])
@pytest.mark.parametrize("isolate", [False, True])
def test_allowed_actions_come_with_every_observation(env: str, isolate: bool) -> None:
    with made(env, 2, isolate=isolate) as envs:
        observations = envs.reset()
        assert envs.spaces.masks
        assert "action_mask" not in observations
        assert envs.masks is not None
        masks = [envs.masks, *(step.masks for step in steps(envs, 5))]
    # Three steps, the first observation of the next episode, and on.
    allowed = [0, 1, 2, 3, 0, 1]
    assert [mask.tolist() for mask in masks if mask is not None] == [
        [np.eye(4)[n].tolist()] * 2 for n in allowed
    ]


def test_nested_observations_arrive_by_name() -> None:
    with made("simulators:MaskedObservation", 2) as envs:
        assert envs.spaces.observations == {
            "board.cells": Array("uint8", (2, 2), 0, 255),
            "turn": Array("float32", (3,), 0, 1),
        }
        envs.reset()
        (step,) = steps(envs, 1)
    assert step.observations["board.cells"].tolist() == [[[1, 1], [1, 1]]] * 2
    assert step.observations["turn"].tolist() == [[0, 1, 0]] * 2


@pytest.mark.parametrize("isolate", [False, True])
def test_actions_out_of_bounds_are_clipped_in_the_environments_own_units(isolate: bool) -> None:
    with made("simulators:Turning", 1, isolate=isolate) as envs:
        assert envs.spaces.action == Continuous((-1.0, -2.0, -3.0, -4.0), (1.0, 2.0, 3.0, 4.0))
        envs.reset()
        assert envs.step(np.array([[9.0, 9.0, 9.0, 9.0]], np.float32)).rewards.tolist() == [4]
        assert envs.step(np.array([[0.0, 0.0, 0.0, -2.5]], np.float32)).rewards.tolist() == [-2.5]


def test_arrays_stay_as_they_were_given() -> None:
    for isolate in (False, True):
        with made("simulators:Counting", 2, isolate=isolate) as envs:
            begin = envs.reset()
            one, *_ = steps(envs, 3)
            assert begin["observation"].tolist() == [[0, 0]] * 2
            assert one.observations["observation"].tolist() == [[0, 1]] * 2
            assert one.terminated.tolist() == [False, False]


@pytest.mark.parametrize("env", ["CartPole-v1", "ALE/Pong-v5", "simulators:Counting"])
def test_a_single_environment_can_be_looked_at(env: str) -> None:
    with made(env, render_mode="rgb_array") as envs:
        envs.reset()
        steps(envs, 1)
        picture = envs.frame()
    assert picture.dtype == np.uint8
    assert picture.shape == {"CartPole-v1": (400, 600, 3), "ALE/Pong-v5": (210, 160, 3)}.get(env, (8, 6, 3))
    assert picture.any()


@pytest.mark.parametrize("game", ["Pong", "Breakout", "SpaceInvaders"])
def test_a_game_that_is_filmed_is_the_game_that_is_played(game: str) -> None:
    options = {"repeat_action_probability": 0.0, "noop_max": 0}
    played, filmed = make(f"ALE/{game}-v5", 1, seed=3, options=options), None
    try:
        filmed = make(f"ALE/{game}-v5", 1, seed=3, options=options, render_mode="rgb_array")
        assert filmed.spaces == played.spaces
        assert near(played.reset(), filmed.reset())
        rng = np.random.default_rng(0)
        for _ in range(100):
            action = rng.integers(0, played.spaces.action.n, 1)  # type: ignore[union-attr]
            one, other = played.step(action), filmed.step(action)
            assert one.rewards == other.rewards
            assert one.terminated == other.terminated
            assert near(one.observations, other.observations)
    finally:
        played.close()
        if filmed is not None:
            filmed.close()


def near(one: Any, other: Any) -> bool:
    """Equal up to rounding."""
    return bool(np.abs(one["observation"].astype(int) - other["observation"]).max() <= 1)


def test_options_of_games_are_those_of_the_vector_and_rewards_are_true_unless_asked() -> None:
    def best(**options: Any) -> float:
        fixed = {"repeat_action_probability": 0.0, "noop_max": 0}
        with made("ALE/MsPacman-v5", options=fixed | options) as envs:
            envs.reset()
            return max(float(envs.step(np.full(1, 3)).rewards[0]) for _ in range(150))

    assert best() == 10
    assert best(reward_clipping=True) == 1
    assert spaces_of("ALE/Pong-v5", options={"full_action_space": True}).action == Discrete(18)
    assert spaces_of("ALE/Pong-v5", options={"stack_num": 2}).observations["observation"].shape == (2, 84, 84)


def test_a_vector_of_ones_own_must_begin_episodes_in_the_step_after() -> None:
    with made("simulators:vector", 3, isolate=False) as envs:
        assert envs.count == 3
        envs.reset()
        seen = steps(envs, 4)
    assert [step.terminated.tolist() for step in seen][2] == [True] * 3
    assert seen[3].first.all()
    with pytest.raises(UserError, match=r"autoreset mode .* is SAME_STEP"):
        make("simulators:vector", 2, seed=0, options={"mode": "SameStep"}, isolate=False)
    with pytest.raises(UserError, match="a vector of 3 environments instead of 2"):
        make("simulators:vector", 2, seed=0, options={"spare": 1}, isolate=False)


@pytest.mark.parametrize(
    ("env", "how", "says", "fix"),
    [
        ("CartPol-v1", {}, "no environment 'CartPol-v1'", "did you mean CartPole-v1?"),
        ("ale/pong-v5", {}, "no environment 'ale/pong-v5'", "did you mean ALE/Pong-v5?"),
        ("nowhere:thing", {}, "no module 'nowhere'", "PYTHONPATH"),
        ("simulators:Countin", {}, "no callable 'Countin'", "did you mean Counting?"),
        ("CartPole-v1", {"options": {"gravity": 1}}, "no option 'gravity'", "remove it"),
        ("Pendulum-v1", {"options": {"gravitee": 1}}, "no option 'gravitee'", "remove it"),
        (
            "ALE/Pong-v5",
            {"options": {"frame_skip": 1}},
            "no option 'frame_skip'",
            "did you mean frameskip?",
        ),
        ("simulators:Counting", {"options": {"lenght": 1}}, "no option 'lenght'", "did you mean length?"),
        ("simulators:odd", {"options": {"what": "text"}}, r"Text \(note\)", "wrap it"),
        ("simulators:odd", {"options": {"what": "actions"}}, "MultiDiscrete", "wrap it"),
        ("simulators:odd", {"options": {"what": "nothing"}}, "returned object", "gymnasium.Env"),
        (
            "simulators:odd",
            {"options": {"what": "text"}, "render_mode": "rgb_array"},
            "no render_mode",
            "pass it on",
        ),
        (
            "simulators:Counting",
            {"options": {"length": object()}},
            "option 'length' .* cannot be sent",
            "isolate=False",
        ),
        ("CartPole-v1", {"count": 0}, "0 environments", "at least one"),
        (
            "CartPole-v1",
            {"count": 2, "render_mode": "rgb_array"},
            "cannot render 2 environments",
            "count=1",
        ),
        ("CartPole-v1", {"render_mode": "human"}, "render mode 'human'", "'rgb_array'"),
        ("CartPole-v1", {"step_timeout": 0}, "step_timeout is 0", "above 0"),
        (
            "ALE/Pong-v5",
            {"render_mode": "rgb_array", "options": {"episodic_life": True}},
            "episodic_life",
            "remove",
        ),
        (" ", {}, "is empty", "CartPole-v1"),
    ],
)
def test_mistakes_are_told_with_the_next_step(env: str, how: dict[str, Any], says: str, fix: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        make(env, how.pop("count", 1), seed=0, **how)
    assert fix in raised.value.fix


@pytest.mark.parametrize(
    ("env", "library", "fix"),
    [
        ("ALE/Pong-v5", "ale_py", "pip install 'callsheet[atari]'"),
        ("HalfCheetah-v5", "mujoco", "pip install 'callsheet[mujoco]'"),
        ("envpool:Pong-v5", "envpool", "pip install envpool"),
        ("LunarLander-v3", "Box2D", 'pip install "gymnasium[box2d]"'),
    ],
)
def test_a_library_that_is_missing_is_named_with_the_line_that_installs_it(
    env: str, library: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == library or "envs.mujoco" in name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    for name in [name for name in gym.registry if name.startswith("ALE/")]:
        monkeypatch.delitem(gym.registry, name)
    with pytest.raises(UserError, match="which is not installed") as raised:
        make(env, 1, seed=0)
    assert fix in raised.value.fix


def test_a_missing_picture_is_told() -> None:
    for env in ("CartPole-v1", "Acrobot-v1", "simulators:Counting"):
        with made(env) as envs, pytest.raises(UserError, match="cannot be rendered"):
            envs.frame()


def test_environments_need_no_torch_and_their_spaces_no_gymnasium() -> None:
    for code, never in (
        ("from callsheet.rl.envs import make; make('CartPole-v1', 2, seed=0).reset()", "torch"),
        ("import callsheet.rl.spaces", "gymnasium"),
    ):
        ends = f"import sys\n{code}\nassert {never!r} not in sys.modules"
        subprocess.run([sys.executable, "-c", ends], check=True)


def test_what_this_process_has_registered_is_known_to_the_environments_own() -> None:
    gym.register("Mine-v0", entry_point="simulators:Counting", kwargs={"length": 1})
    gym.register("Mine-v1", entry_point=lambda: None)
    try:
        with made("Mine-v0", 2) as envs:
            assert type(envs).__name__ == "IsolatedEnvironments"
            envs.reset()
            assert steps(envs, 1)[0].terminated.all()
        with pytest.raises(UserError, match="cannot run in a worker process") as raised:
            make("Mine-v1", 1, seed=0)
        assert "isolate=False" in raised.value.fix
    finally:
        del gym.registry["Mine-v0"], gym.registry["Mine-v1"]
