"""Every algorithm with every kind of policy and observation learns something that chance does not get."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from training_loop import Loop

from callsheet.rl.settings import Training

EVERYTHING = 8.0
SETTINGS = {
    "ppo": {"environments": 16, "rollout": 16, "minibatch": 128, "learning_rate": 3e-3, "gamma": 0.5},
    "impala": {"environments": 16, "rollout": 16, "batch": 1, "learning_rate": 3e-3, "gamma": 0.5},
}
KINDS = {
    "a vector": ({"shows": "vector"}, {}),
    "a choice": ({"shows": "choice"}, {}),
    "an image": ({"shows": "image"}, {"embed": 32}),
    "an image, ResNet": ({"shows": "small"}, {"torso": "resnet", "embed": 32}),
    "an image and a vector": ({"shows": "dict"}, {"embed": 32}),
    "forbidden actions": ({"shows": "masked"}, {}),
    "memory": ({"shows": "once"}, {"lstm": 32}),
    "a vector, continuous": ({"shows": "vector", "continuous": True}, {"log_std": -1.0}),
    "an image, continuous": ({"shows": "image", "continuous": True}, {"embed": 32, "log_std": -1.0}),
}


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    torch.set_num_threads(1)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "programs"))
    assert sys.path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SETTINGS)
def test_it_learns_from(name: str, kind: str) -> None:
    options, network = KINDS[kind]
    settings: dict[str, Any] = {**SETTINGS[name], "network": network}
    loop = Loop(Training(algorithm=name, env="learnable:match", options=options, settings=settings))
    try:
        loop.update()
        chance = sum(loop.episodes.returns) / len(loop.episodes.returns)
        while (loop.episodes.mean or 0.0) < 0.75 * EVERYTHING and loop.updates < 300:
            loop.update()
    finally:
        loop.close()
    print(f"{name}, {kind}: from {chance:.1f} to {loop.episodes.mean:.1f} in {loop.updates} updates")
    assert chance < 0.45 * EVERYTHING
    assert (loop.episodes.mean or 0.0) >= 0.75 * EVERYTHING
