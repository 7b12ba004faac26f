"""What is put around a vector of environments costs next to nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv

from callsheet.rl.envs import make


def rates(step: dict[str, Callable[[Any], Any]], count: int, actions: int, number: int) -> dict[str, float]:
    """Steps per second of each, the best of many short turns that alternate."""
    chosen = np.random.default_rng(0).integers(0, actions, (number, count))
    best = dict.fromkeys(step, 0.0)
    for _ in range(40):
        for name, go in step.items():
            begin = time.perf_counter()
            for action in chosen:
                go(action)
            best[name] = max(best[name], number * count / (time.perf_counter() - begin))
    return best


@pytest.mark.exclusive
def test_cartpoles_keep_four_fifths_of_their_speed_and_games_nearly_all() -> None:
    bare = gym.make_vec("CartPole-v1", 64, vectorization_mode="vector_entry_point")
    bare.reset(seed=0)
    ours = make("CartPole-v1", 64, seed=0)
    ours.reset()
    poles = rates({"bare": bare.step, "ours": ours.step}, 64, 2, 500)

    games = AtariVectorEnv("pong", 8, num_threads=2)
    games.reset(seed=0)
    pong = make("ALE/Pong-v5", 8, seed=0, options={"num_threads": 2, "repeat_action_probability": 0.0})
    pong.reset()
    played = rates({"bare": games.step, "ours": pong.step}, 8, 6, 20)

    print(f"\nCartPole x 64: {poles}\nPong x 8: {played}")
    for each in (bare, ours, games, pong):
        each.close()
    assert poles["ours"] >= 0.8 * poles["bare"]
    assert played["ours"] >= 0.95 * played["bare"]
