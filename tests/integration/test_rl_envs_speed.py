"""What is put around a vector of environments costs next to nothing."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

from callsheet.rl.envs import make


def own_share(
    bare: type[Any], name: str, count: int, steps: int, options: dict[str, Any] | None = None
) -> float:
    """Of the time of a step of ours, the part that the vector inside takes: the median of many steps.

    Both are measured in the same step: what else the machine does slows both down."""
    inside: list[float] = []
    step = bare.step

    def timed(self: Any, actions: Any) -> Any:
        begun = time.perf_counter()
        try:
            return step(self, actions)
        finally:
            inside.append(time.perf_counter() - begun)

    shares = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bare, "step", timed)
        ours = make(name, count, seed=0, options=options or {})
        ours.reset()
        for actions in np.random.default_rng(0).integers(0, 2, (steps, count)):
            begun = time.perf_counter()
            ours.step(actions)
            shares.append(inside[-1] / (time.perf_counter() - begun))
        ours.close()
    assert len(inside) == steps
    return float(np.median(shares))


@pytest.mark.exclusive
def test_cartpoles_keep_four_fifths_of_their_speed_and_games_nearly_all() -> None:
    poles = own_share(CartPoleVectorEnv, "CartPole-v1", 64, 20_000)
    games = own_share(
        AtariVectorEnv, "ALE/Pong-v5", 8, 500, {"num_threads": 2, "repeat_action_probability": 0.0}
    )
    print(f"\nof its own speed keeps CartPole x 64: {poles:.3f}, Pong x 8: {games:.3f}")
    assert poles >= 0.8
    assert games >= 0.95
