"""PPO's settings, with defaults for each family of environments."""

from __future__ import annotations

from callsheet.rl.settings import AlgorithmSettings
from callsheet.rl.spaces import Family


class Config(AlgorithmSettings, frozen=True, kw_only=True):
    """PPO's settings."""

    rollout: int = 128
    """Steps per environment between updates."""
    epochs: int = 4
    """Passes over the data in each update."""
    minibatch: int = 512
    """Steps per gradient step. With an LSTM, whole rollouts of about as many steps."""
    learning_rate: float = 3e-4
    """Adam's learning rate."""
    anneal: bool = False
    """Lower the learning rate linearly to 0 by the end of the training (`stop.steps` or `stop.seconds`)."""
    gamma: float = 0.99
    """Discount factor."""
    lam: float = 0.95
    """GAE's lambda: 0 trusts the value function, 1 the rewards."""
    clip: float = 0.2
    """PPO's clip range: how far the probability of an action may move in one update."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    max_gradient: float = 0.5
    """Maximum gradient norm; larger gradients are clipped."""
    normalize: bool = False
    """Normalize observations by their running mean and standard deviation."""


def defaults(family: Family) -> Config:
    """Defaults that work without tuning."""
    match family:
        case "classic":
            return Config(
                environments=16,
                rollout=32,
                epochs=4,
                minibatch=256,
                learning_rate=5e-3,
            )
        case "atari":
            return Config(
                environments=8,
                rollout=128,
                epochs=4,
                minibatch=256,
                learning_rate=2.5e-4,
                anneal=True,
                clip=0.1,
                entropy=0.01,
            )
        case "mujoco":
            return Config(
                environments=2,
                rollout=512,
                epochs=10,
                minibatch=64,
                learning_rate=3e-4,
                anneal=True,
                normalize=True,
            )
        case _:
            return Config(entropy=0.01)
