"""What actors put into a replay: transitions over several steps whose every number is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_rl_acting import SPACES, Counting, Zero

from callsheet.rl.acting.transitions import TransitionBatch, Transitions
from callsheet.rl.algorithms.dqn.config import Config
from callsheet.rl.envs import make
from callsheet.rl.nets.network import Network
from callsheet.rl.nets.numpy_policy import NumpyPolicy
from callsheet.rl.nets.sampling import Actions


class Valuing(Zero):
    """Always the first action, which has ten times the number of steps as its value."""

    def act(self, obs: Any, rng: Any, **more: Any) -> Actions:
        value = obs["observation"][:, 0] * 10
        return Actions(np.zeros(2, np.int64), None, value, None, value - 1)


def turns(count: int, *, steps: int, n: int, dies_in: int = 99) -> list[TransitionBatch]:
    transitions = Transitions(Counting(dies_in), Valuing(), 0, steps=steps, n=n, gamma=0.5)
    return [transitions.play() for _ in range(count)]


def items(played: list[TransitionBatch]) -> list[tuple[float, ...]]:
    """(observation, reward, discount, next observation) of all transitions, in the order of playing."""
    return [
        (float(o[0]), float(r), float(d), float(n[0]))
        for one in played
        for o, r, d, n in zip(
            one.items["obs.observation"],
            one.items["reward"],
            one.items["discount"],
            one.items["next.observation"],
            strict=True,
        )
    ]


# The first environment's episodes have 3 steps and end, the second one's have 2 and are cut short: what would have
# followed there is the value of the last observation.
FIRST = [(0, 1.5, 0.25, 2), (1, 1.5, 0, 3), (2, 1, 0, 3)]
SECOND = [(0, 1.5, 0.25, 2), (1, 1, 0.5, 2)]


def test_rewards_of_two_steps_are_summed_and_none_reaches_beyond_an_episode() -> None:
    found = items(turns(1, steps=4, n=2))
    assert sorted(found) == sorted(FIRST + SECOND + [(0, 1.5, 0.25, 2)]), "the last begins a new episode"


def test_turns_join_without_a_gap() -> None:
    whole = items(turns(1, steps=12, n=3))
    for steps in (1, 2, 3, 4, 6):
        assert items(turns(12 // steps, steps=steps, n=3)) == whole


def test_steps_and_episodes_are_counted_once() -> None:
    played = turns(3, steps=4, n=2)
    assert sum(one.steps for one in played) == 11 + 10, "of 14 steps each, without those into a new episode"
    assert [len(one.returns) for one in played] == [3, 2, 3]
    assert sorted(played[0].returns) == [2, 2, 3]
    assert sorted(played[0].lengths) == [2, 2, 3]


def test_priorities_are_the_errors_of_the_actors_own_values() -> None:
    (played,) = turns(1, steps=1, n=1)
    assert played.priorities is not None
    # From 0 to 1: the reward 1, half of what 1 is worth (10), and 0 was thought to be worth -1.
    assert played.priorities.tolist() == [7.0, 7.0]


def test_nothing_reaches_over_the_death_of_a_simulator() -> None:
    found = items(turns(1, steps=6, n=2, dies_in=5))
    alive = items(turns(1, steps=6, n=2))
    second = [one for one in found if found.count(one) != alive.count(one)]
    assert len(found) == len(alive) - 1
    assert all(reward <= 1.5 for _, reward, _, _ in found)
    assert second.count((0, 1.5, 0.25, 2)) < alive.count((0, 1.5, 0.25, 2)), "the broken episode is left out"


def test_each_environment_of_each_actor_explores_with_a_chance_of_its_own() -> None:
    one, two, three = (Config(environments=4).epsilons(actor=actor, actors=2) for actor in (0, 1, 2))
    assert [one[0], two[-1]] == pytest.approx([0.4, 0.4**8])
    assert (np.diff(np.stack([one, two], axis=1).ravel()) < 0).all(), "each actor has bold ones and calm ones"
    assert three.tolist() == one.tolist(), "one more begins anew"
    assert Config(environments=1).epsilons(actor=0, actors=1).tolist() == pytest.approx([0.4**4.5])


def test_the_episodes_that_are_told_of_are_those_of_the_half_that_explores_less() -> None:
    bold = np.array([0.4, 0.001], np.float32)
    some = Transitions(Counting(), Valuing(), 0, steps=12, n=1, gamma=0.5, epsilon=bold).play()
    every = Transitions(Counting(), Valuing(), 0, steps=12, n=1, gamma=0.5).play()
    assert sorted(every.lengths.tolist()) == [2, 2, 2, 2, 3, 3, 3]
    assert some.lengths.tolist() == [2, 2, 2, 2], "the second environment's"
    assert some.steps == every.steps, "steps of both count"


def test_a_policy_explores_as_often_as_it_is_told_and_tells_what_it_thinks_of_its_choice() -> None:
    policy = NumpyPolicy(SPACES, Network(head="q", hidden=(4,)))
    rng = np.random.default_rng(0)
    policy.load({one.name: rng.standard_normal(one.shape, np.float32) for one in policy.layout.parameters})
    obs = {"observation": np.ones((1000, 1), np.float32)}
    values = policy.q(obs)
    acted = policy.act(obs, rng, epsilon=np.repeat(np.float32([0.0, 0.5]), 500))
    assert acted.chosen is not None
    np.testing.assert_array_equal(acted.chosen, values[np.arange(1000), acted.action])
    other = acted.action != values.argmax(1)
    assert not other[:500].any()
    assert 0.15 < other[500:].mean() < 0.35, "half are random, and half of those are the best one by chance"


def test_before_there_is_a_policy_continuous_actions_are_anywhere_in_their_range() -> None:
    environments = make("Pendulum-v1", 4, seed=0)
    try:
        policy = NumpyPolicy(environments.spaces, Network(head="soft-actor-critic", hidden=(4,)))
        played = Transitions(environments, policy, 0, steps=50, n=1, gamma=0.9).play(at_random=True)
    finally:
        environments.close()
    actions = played.items["action"]
    assert actions.shape == (200, 1)
    assert -2 <= actions.min() < -1.8
    assert 1.8 < actions.max() <= 2
    assert played.priorities is None
    assert sorted(played.items) == ["action", "discount", "next.observation", "obs.observation", "reward"]
