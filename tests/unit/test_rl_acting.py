"""What actors send: rollouts whose every number is known, also when an episode ends or its simulator dies."""

from __future__ import annotations

from typing import Any

import numpy as np

from callsheet.rl.acting.episodes import play
from callsheet.rl.acting.rollouts import Rollouts, axes, schema
from callsheet.rl.envs.base import Step
from callsheet.rl.learning_curve import WINDOW, LearningCurve, RecentEpisodes
from callsheet.rl.nets.sampling import Actions
from callsheet.rl.settings import Training
from callsheet.rl.spaces import Array, Discrete, Spaces

SPACES = Spaces({"observation": Array("float32", (1,))}, Discrete(2))


class Counting:
    """Two environments that show how many steps an episode has. The first one's episodes have 3 steps and end; the
    second one's have 2 and are cut short; and its simulator dies in one step. It counts how often both began anew."""

    spaces, count, restarts = SPACES, 2, 0
    masks = None

    def __init__(self, dies_in: int = 99, ends: tuple[int, int] = (3, 2)) -> None:
        self._ends = ends
        self._all, self._dies_in = 0, dies_in
        self.resets = 0

    def reset(self, seed: int | None = None) -> dict[str, Any]:
        self.resets += 1
        self._steps = np.zeros(2, int)
        self._over = np.zeros(2, bool)
        return {"observation": np.zeros((2, 1), np.float32)}

    def step(self, actions: Any) -> Step:
        self._all += 1
        valid = ~self._over
        self._steps = np.where(self._over, 0, self._steps + 1)
        first = self._over.copy()
        broken = np.array([False, self._all == self._dies_in])
        self._steps[broken] = 0
        first |= broken
        ended = valid & (self._steps >= self._ends)
        self._over = ended
        return Step(
            {"observation": self._steps[:, None].astype(np.float32)},
            valid.astype(np.float32) * ~broken,
            ended & [True, False],
            ended & [False, True],
            valid & ~broken,
            first,
            broken,
        )

    def frame(self) -> Any:
        raise NotImplementedError

    def close(self) -> None: ...


class Zero:
    """Always the first action."""

    state_size = 0

    def load(self, snapshot: Any) -> None: ...

    def act(self, obs: Any, rng: Any, **more: Any) -> Actions:
        zeros = np.zeros(2, np.float32)
        return Actions(np.zeros(2, np.int64), zeros, obs["observation"][:, 0] * 10)


def rollout(steps: int, dies_in: int = 99) -> tuple[dict[str, Any], Rollouts]:
    shape = schema(SPACES, steps, 2, values=True)
    arrays = {one.name: np.zeros(one.shape, one.dtype) for one in shape.fields}
    rollouts = Rollouts(Counting(dies_in), Zero(), seed=0)
    rollouts.fill(arrays)
    return arrays, rollouts


def test_a_rollout_shows_every_step_and_where_episodes_end() -> None:
    arrays, rollouts = rollout(6)
    assert arrays["obs.observation"][:, 0, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert arrays["obs.observation"][:, 1, 0].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert arrays["terminated"][:, 0].tolist() == [0, 0, 1, 0, 0, 0]
    assert arrays["truncated"][:, 1].tolist() == [0, 1, 0, 0, 1, 0]
    assert arrays["valid"][:, 0].tolist() == [1, 1, 1, 0, 1, 1], "the step into a new episode does not count"
    assert arrays["first"][:, 0].tolist() == [1, 0, 0, 0, 1, 0, 0]
    assert arrays["value"][3, 0] == 30, "the value of a last observation is there to go on from"
    assert arrays["episode_steps"][:, 1].tolist() == [0, 2, 0, 0, 2, 0]
    assert arrays["episode_return"][2, 0] == 3
    assert np.isnan(arrays["episode_return"][:2, 0]).all()
    assert rollouts.episodes == 3


def test_an_episode_whose_simulator_died_does_not_count() -> None:
    arrays, rollouts = rollout(6, dies_in=5)
    assert arrays["valid"][:, 1].tolist() == [1, 1, 0, 0, 0, 1]
    assert arrays["episode_steps"][:, 1].tolist() == [0, 2, 0, 0, 0, 0]
    assert rollouts.broken == 1
    assert arrays["valid"][:, 0].tolist() == [1, 1, 1, 0, 1, 1], "the other one goes on"


def test_an_evaluation_plays_its_number_of_episodes_evenly() -> None:
    played = play(Counting(), Zero(), 5, seed=1)
    assert sorted(played.returns) == [2, 2, 3, 3, 3]
    assert sorted(played.steps) == [2, 2, 3, 3, 3]
    assert played.mean == 2.6


def test_an_episode_of_an_evaluation_that_never_ends_is_cut_short() -> None:
    environments = Counting(ends=(10**9, 2))
    played = play(environments, Zero(), 5, seed=1, longest=4)
    assert (played.steps, played.cut) == ([4, 4, 4, 2, 2], 3)
    assert played.returns == [4, 4, 4, 2, 2]
    assert environments.resets == 3, "the only way to a new episode; none is needed after the last"
    played = play(Counting(), Zero(), 5, seed=1, longest=3)
    assert (sorted(played.steps), played.cut) == ([2, 2, 3, 3, 3], 0), "an end in the last step is an end"


def test_signs_of_rewards_are_learned_from_and_true_returns_are_told() -> None:
    class Generous(Counting):
        def step(self, actions: Any) -> Step:
            step = super().step(actions)
            step.rewards *= np.array([10, -10], np.float32)
            return step

    shape = schema(SPACES, 6, 2)
    arrays = {one.name: np.zeros(one.shape, one.dtype) for one in shape.fields}
    Rollouts(Generous(), Zero(), seed=0, clip_rewards=True).fill(arrays)
    assert arrays["reward"][:, 0].tolist() == [1, 1, 1, 0, 1, 1]
    assert arrays["reward"][:, 1].tolist() == [-1, -1, 0, -1, -1, 0]
    assert arrays["episode_return"][2, 0] == 30
    assert arrays["episode_return"][1, 1] == -20


def test_atari_is_learned_from_signs_unless_told_otherwise() -> None:
    def signs(**more: Any) -> bool:
        return Training(algorithm="dqn", env="ALE/Pong-v5", **more).clip_rewards

    assert signs(family="atari")
    assert not signs(family="atari", rewards="true")
    assert not signs(family="classic")
    assert signs(family="classic", rewards="sign")


def test_rollouts_are_joined_along_their_environments() -> None:
    assert axes(["obs.observation", "reward", "state"]) == {"obs.observation": 1, "reward": 1, "state": 0}


def test_the_return_is_told_once_there_are_twenty_episodes() -> None:
    episodes = RecentEpisodes()
    episodes.add(np.arange(19.0), np.arange(19))
    assert episodes.mean is None
    episodes.add(np.array([100.0, 200.0]), np.array([1, 1]))
    assert episodes.mean == (sum(range(1, 19)) + 300) / WINDOW


def test_a_curve_that_grows_long_keeps_its_whole_course() -> None:
    curve = LearningCurve(None, min_interval=0.0)
    for number in range(50_000):
        curve.add(float(number), {"steps": number, "return": None})
    assert len(curve.points) <= 20_001
    assert curve.points[0]["steps"] == 0
    assert curve.points[-1] == {"elapsed": 49_999.0, "time": curve.points[-1]["time"], "steps": 49_999}
    curve.truncate(10_000)
    assert max(point["steps"] for point in curve.points) <= 10_000
