"""Settings of DQN, and defaults that work for each family of environments."""

from __future__ import annotations

from callsheet.rl.nets.network import Network
from callsheet.rl.settings import Settings
from callsheet.rl.spaces import Family


class Config(Settings, frozen=True, kw_only=True):
    """DQN's settings."""

    environments: int = 8
    """Environments of each actor."""
    rollout: int = 16
    """Steps of each environment after which an actor hands its transitions over and looks for a newer policy."""
    batch: int = 128
    """Transitions of one update."""
    updates_per_step: float = 0.125
    """Updates for each environment step. Whoever is ahead waits: actors or learner."""
    capacity: int = 500_000
    """Transitions that the replay holds; then the oldest make room."""
    memory: int = 6_000_000_000
    """Bytes that they take at most: fewer than `capacity` are held where they are large, as pictures are."""
    warmup: int = 2_000
    """Transitions in the replay before learning begins; until then actors play at random."""
    alpha: float = 0.6
    """How much priorities count when transitions are drawn: 0 not at all, 1 fully."""
    beta: float = 0.4
    """How much of that the loss corrects at first; it grows in a line to 1 at the training's end."""
    n_step: int = 3
    """Steps whose rewards a transition sums up before the value function is asked."""
    gamma: float = 0.99
    """How much a reward one step later is worth."""
    epsilon: float = 0.4
    """Share of random actions of the environment that explores most."""
    epsilon_spread: float = 7.0
    """The one that explores least has `epsilon` to the power of 1 + this; the others lie between. One that is alone lies
    in the middle."""
    learning_rate: float = 5e-4
    """Of Adam."""
    target_every: int = 500
    """Updates after which the network that gives the targets is renewed."""
    max_gradient: float = 10.0
    """Longer gradients are cut to this norm."""
    publish_every: int = 10
    """Updates after which actors get a new policy."""
    network: Network = Network(head="q", dueling=True)
    """The shape of the value function."""

    def __post_init__(self) -> None:
        if self.network.head != "q":
            raise ValueError(f'network.head is {self.network.head!r}, and DQN needs "q"')
        if self.network.lstm:
            raise ValueError(
                f"network.lstm is {self.network.lstm}, and DQN learns from single transitions: use 0"
            )


def defaults(family: Family) -> Config:
    """What works without tuning."""
    match family:
        case "classic":
            return Config(
                environments=4,
                rollout=4,
                updates_per_step=0.5,
                capacity=100_000,
                warmup=1_000,
                n_step=2,
                learning_rate=1e-3,
                target_every=50,
                network=Network(head="q"),
            )
        case "atari":
            return Config(
                environments=8,
                batch=64,
                updates_per_step=0.125,
                capacity=100_000,
                warmup=10_000,
                learning_rate=1e-4,
                target_every=1_000,
            )
        case _:
            return Config()
