"""Settings of PPO, and defaults that work for each family of environments."""

from __future__ import annotations

from callsheet.rl.nets.network import Network
from callsheet.rl.settings import Settings
from callsheet.rl.spaces import Family


class Config(Settings, frozen=True, kw_only=True):
    """PPO's settings."""

    environments: int = 8
    """Environments of each actor."""
    rollout: int = 128
    """Steps of each environment between two updates."""
    epochs: int = 4
    """How often an update goes through its steps."""
    minibatch: int = 512
    """Steps of one gradient step; with an LSTM whole rollouts of about as many steps."""
    learning_rate: float = 3e-4
    """Of Adam."""
    anneal: bool = False
    """Whether the learning rate falls in a line to 0 at `stop.steps`."""
    gamma: float = 0.99
    """How much a reward one step later is worth."""
    lam: float = 0.95
    """GAE's lambda: 0 trusts the value function, 1 the rewards."""
    clip: float = 0.2
    """How far an action's probability may move in one update before its gradient vanishes."""
    value_weight: float = 0.5
    """Of the value function's loss."""
    entropy: float = 0.0
    """Bonus for policies that keep their options open."""
    max_gradient: float = 0.5
    """Longer gradients are cut to this norm."""
    normalize: bool = False
    """Whether observations are scaled by their running mean and deviation."""
    network: Network = Network()
    """The policy's shape."""


def defaults(family: Family) -> Config:
    """What works without tuning."""
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
