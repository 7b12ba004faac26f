"""Algorithms that learn from a replay, with every kind of policy and observation, get what chance does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from replay_training_loop import ReplayLoop

from callsheet.rl.settings import Training

EVERYTHING = 8.0
SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": {
        "batch": 32,
        "updates_per_step": 0.25,
        "epsilon": 0.05,
        "learning_rate": 3e-3,
        "target_every": 20,
    },
    "sac": {"batch": 32, "updates_per_step": 0.25, "learning_rate": 3e-3, "target_entropy": -2.0},
}
ALL = {"environments": 8, "rollout": 4, "capacity": 5_000, "warmup": 200, "n_step": 1, "gamma": 0.5}
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a vector": ("dqn", {"shows": "vector"}, {"hidden": [32]}),
    "a choice": ("dqn", {"shows": "choice"}, {"hidden": [32]}),
    "an image": ("dqn", {"shows": "image"}, {"embed": 32}),
    "an image, ResNet": ("dqn", {"shows": "small"}, {"torso": "resnet", "embed": 32}),
    "an image and a vector": ("dqn", {"shows": "dict"}, {"embed": 32, "hidden": [32]}),
    "forbidden actions": ("dqn", {"shows": "masked"}, {"hidden": [32]}),
    "a vector, continuous": ("sac", {"shows": "vector", "continuous": True}, {"hidden": [32]}),
    "an image, continuous": ("sac", {"shows": "image", "continuous": True}, {"embed": 32, "hidden": [32]}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_from(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "programs"))
    name, options, network = KINDS[kind]
    settings = {**ALL, **SETTINGS[name], "network": network}
    loop = ReplayLoop(Training(algorithm=name, env="learnable:match", options=options, settings=settings))
    try:
        while not loop.updates:
            loop.turn()
        chance = sum(loop.episodes.returns) / len(loop.episodes.returns)
        while (loop.episodes.mean or 0.0) < 0.75 * EVERYTHING and loop.steps < 12_000:
            loop.turn()
    finally:
        loop.close()
    print(f"{name}, {kind}: from {chance:.1f} to {loop.episodes.mean:.1f} in {loop.steps} steps")
    assert chance < 0.45 * EVERYTHING
    assert (loop.episodes.mean or 0.0) >= 0.75 * EVERYTHING
