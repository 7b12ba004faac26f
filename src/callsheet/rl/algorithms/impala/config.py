"""Settings of IMPALA, and defaults that work for each family of environments."""

from __future__ import annotations

from callsheet.rl.nets.network import Network
from callsheet.rl.settings import Settings
from callsheet.rl.spaces import Family


class Config(Settings, frozen=True, kw_only=True):
    """IMPALA's settings."""

    environments: int = 8
    """Environments of each actor."""
    rollout: int = 20
    """Steps of each environment in one rollout."""
    batch: int = 4
    """Rollouts of one batch."""
    epochs: int = 1
    """How often an update goes through its batch; more than 1 only with `clip`."""
    minibatches: int = 1
    """Parts of the batch, whole rollouts each, that get a gradient step of their own."""
    max_policy_lag: int = 50
    """Rollouts of a policy that is older than so many updates do not count."""
    ahead: int = 1
    """Rollouts that an actor may have on their way to the learner: more of them are older."""
    learning_rate: float = 5e-4
    """Of Adam."""
    anneal: bool = False
    """Whether the learning rate falls in a line to 0 at `stop.steps`."""
    gamma: float = 0.99
    """How much a reward one step later is worth."""
    lam: float = 1.0
    """V-trace's lambda: how far corrections reach back."""
    rho_clip: float = 1.0
    """Largest weight of a step's own correction."""
    c_clip: float = 1.0
    """Largest weight with which corrections are passed back in time."""
    clip: float = 0.0
    """Above 0: PPO's clipped surrogate instead of the plain policy gradient."""
    value_weight: float = 0.5
    """Of the value function's loss."""
    entropy: float = 0.01
    """Bonus for policies that keep their options open."""
    normalize_advantages: bool = False
    """Whether the advantages of a batch are brought to mean 0 and deviation 1."""
    max_gradient: float = 40.0
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
