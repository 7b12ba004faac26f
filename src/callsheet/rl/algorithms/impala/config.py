"""IMPALA's settings, with defaults for each family of environments."""

from __future__ import annotations

from callsheet.rl.settings import RolloutSettings
from callsheet.rl.spaces import Family


class Config(RolloutSettings, frozen=True, kw_only=True):
    """IMPALA's settings."""

    batch: int = 4
    max_policy_lag: int | None = 50
    epochs: int = 1
    """Passes over the data in each update. Use more than 1 only with `clip`."""
    minibatches: int = 1
    """Minibatches per pass, each of whole rollouts."""
    learning_rate: float = 5e-4
    """Adam's learning rate."""
    anneal: bool = False
    """Lower the learning rate linearly to 0 by the end of the training (`stop.steps` or `stop.seconds`)."""
    gamma: float = 0.99
    """Discount factor."""
    lam: float = 1.0
    """V-trace's lambda: how far back corrections reach."""
    rho_clip: float = 1.0
    """V-trace's clip of the importance weight of each step."""
    c_clip: float = 1.0
    """V-trace's clip of the trace coefficients, which pass corrections back in time."""
    clip: float = 0.0
    """PPO's clip range. 0: plain policy gradient; above 0: the clipped surrogate loss (APPO)."""
    value_weight: float = 0.5
    """Weight of the value loss."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""
    normalize_advantages: bool = False
    """Normalize the advantages of each minibatch to mean 0 and standard deviation 1."""
    max_gradient: float = 40.0
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
                batch=2,
                epochs=6,
                minibatches=4,
                learning_rate=5e-3,
                lam=0.95,
                clip=0.2,
                entropy=0.0,
                normalize_advantages=True,
                max_gradient=0.5,
            )
        case "atari":
            return Config(environments=16, rollout=20, batch=2, learning_rate=6e-4, anneal=True)
        case "mujoco":
            return Config(
                environments=4,
                rollout=128,
                batch=4,
                epochs=4,
                minibatches=4,
                learning_rate=3e-4,
                lam=0.95,
                clip=0.2,
                entropy=0.0,
                normalize_advantages=True,
                max_gradient=0.5,
                normalize=True,
            )
        case _:
            return Config()
