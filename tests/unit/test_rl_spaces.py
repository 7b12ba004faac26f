"""What an environment looks like is plain data, and Gymnasium's spaces are said in it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from callsheet.errors import UserError
from callsheet.rl.envs.adapters.spaces import SpaceAdapter
from callsheet.rl.envs.base import seed_of
from callsheet.rl.spaces import Array, Continuous, Discrete, Spaces

TWO = gym.spaces.Discrete(2)


def words(observations: gym.Space[Any], actions: gym.Space[Any] = TWO) -> SpaceAdapter:
    return SpaceAdapter(observations, actions, "it")


def test_spaces_go_through_a_file_unchanged() -> None:
    for action in (Discrete(4), Continuous((-1.0, -2.0), (1.0, 2.0))):
        spaces = Spaces(
            {"observation": Array("uint8", (4, 84, 84), 0, 255)}, action, masks=True, family="atari"
        )
        assert Spaces.from_json(spaces.to_json()) == spaces
    assert Continuous((-1.0, -2.0), (1.0, 2.0)).size == 2


def test_a_plain_observation_is_called_observation_and_nested_ones_by_their_keys() -> None:
    box = gym.spaces.Box(-1, 1, (3,), np.float64)
    assert words(box).spaces(False, "other").observations == {
        "observation": Array("float32", (3,), -1.0, 1.0)
    }
    nested = gym.spaces.Dict({"a": box, "b": gym.spaces.Dict({"c": box, "d": gym.spaces.Tuple([box, box])})})
    assert list(words(nested).spaces(False, "other").observations) == ["a", "b.c", "b.d.0", "b.d.1"]


def test_pictures_stay_bytes_and_everything_else_becomes_float32() -> None:
    observed = words(
        gym.spaces.Dict(
            {
                "bits": gym.spaces.MultiBinary((2, 2)),
                "camera": gym.spaces.Box(0, 255, (4, 4, 3), np.uint8),
                "level": gym.spaces.Box(0, 9, (), np.int64),
                "speed": gym.spaces.Box(-np.inf, 3, (2,), np.float32),
            }
        )
    ).spaces(False, "other")
    assert observed.observations == {
        "bits": Array("float32", (2, 2), 0.0, 1.0),
        "camera": Array("uint8", (4, 4, 3), 0.0, 255.0),
        "level": Array("float32", (), 0.0, 9.0),
        "speed": Array("float32", (2,), None, 3.0),
    }


def test_a_choice_is_spread_out_the_same_way_one_by_one_and_all_at_once() -> None:
    choice = words(gym.spaces.Discrete(3, start=5)).parts[0]
    assert choice.batch(np.array([5, 7])).tolist() == [[1, 0, 0], [0, 0, 1]]
    several = words(gym.spaces.MultiDiscrete([2, 3])).parts[0]
    values = np.array([[1, 0], [0, 2]])
    out = several.empty(2)
    for index, value in enumerate(values):
        several.write(out, index, value)
    assert out.tolist() == several.batch(values).tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_numbers_as_actions_are_clipped_and_take_the_shape_and_type_of_the_environment() -> None:
    taken = words(TWO, gym.spaces.Box(np.array([[-1.0], [-2.0]]), np.array([[1.0], [2.0]]), dtype=np.float64))
    assert taken.action == Continuous((-1.0, -2.0), (1.0, 2.0))
    given = taken.actions(np.array([[0.5, -9.0]], np.float32))
    assert given.dtype == np.float64
    assert given.tolist() == [[[0.5], [-2.0]]]


def test_actions_are_counted_from_zero_whatever_the_environment_counts_from() -> None:
    taken = words(TWO, gym.spaces.Discrete(3, start=-1))
    assert taken.action == Discrete(3)
    assert taken.each_action(np.array([0, 2])) == [-1, 1]


@pytest.mark.parametrize(
    ("observations", "actions", "says"),
    [
        (gym.spaces.Text(3), TWO, "observations of type Text"),
        (gym.spaces.Dict({"a": gym.spaces.Sequence(TWO)}), TWO, r"Sequence \(a\)"),
        (gym.spaces.Dict({}), TWO, "has no observations"),
        (gym.spaces.Discrete(10**6), TWO, "1000000 discrete values"),
        (gym.spaces.Dict({"a.b": TWO, "a": gym.spaces.Dict({"b": TWO})}), TWO, "two observations .* 'a.b'"),
        (TWO, gym.spaces.MultiDiscrete([2, 2]), r"MultiDiscrete\(\[2 2\]\)"),
        (TWO, gym.spaces.Box(-np.inf, np.inf, (1,)), "unbounded actions"),
        (TWO, gym.spaces.Box(0, 9, (1,), np.int64), "takes actions of type Box"),
    ],
)
def test_what_cannot_be_used_is_named(
    observations: gym.Space[Any], actions: gym.Space[Any], says: str
) -> None:
    with pytest.raises(UserError, match=says) as raised:
        words(observations, actions)
    assert raised.value.fix


def test_seeds_of_neighbors_have_nothing_in_common() -> None:
    seeds = {seed_of(actor, index) for actor in range(50) for index in range(64)}
    assert len(seeds) == 50 * 64
    assert max(seeds) < 2**30
    assert seed_of(3, 4) == seed_of(3, 4) != seed_of(4, 3)
