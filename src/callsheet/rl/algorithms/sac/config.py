"""Settings of SAC, and defaults that work for each family of environments."""

from __future__ import annotations

from callsheet.rl.nets.network import Network
from callsheet.rl.settings import Settings
from callsheet.rl.spaces import Family


class Config(Settings, frozen=True, kw_only=True):
    """SAC's settings."""

    environments: int = 1
    """Environments of each actor."""
    rollout: int = 8
    """Steps of each environment after which an actor hands its transitions over and looks for a newer policy. One by one
    they cost more than the steps themselves."""
    batch: int = 256
    """Transitions of one update."""
    updates_per_step: float = 1.0
    """Updates for each environment step. Whoever is ahead waits: actors or learner."""
    capacity: int = 1_000_000
    """Transitions that the replay holds; then the oldest make room."""
    memory: int = 6_000_000_000
    """Bytes that they take at most: fewer than `capacity` are held where they are large, as pictures are."""
    warmup: int = 1_000
    """Transitions in the replay before learning begins; until then actors play at random."""
    n_step: int = 1
    """Steps whose rewards a transition sums up before the critics are asked."""
    gamma: float = 0.99
    """How much a reward one step later is worth."""
    learning_rate: float = 1e-3
    """Of Adam: for policy, critics and temperature."""
    tau: float = 0.005
    """How far the critics that give the targets follow the others in each update."""
    temperature: float = 0.1
    """How much randomness is worth at first, beside rewards. It moves slowly, with the learning rate: from 1 it takes some
    ten thousand updates until rewards of the usual size count at all."""
    target_entropy: float | None = None
    """The randomness that the temperature aims at; null: minus 1 for each number of an action."""
    publish_every: int = 4
    """Updates after which actors get a new policy."""
    network: Network = Network(head="soft-actor-critic")
    """The shape of policy and critics."""

    def __post_init__(self) -> None:
        if self.network.head != "soft-actor-critic":
            raise ValueError(f'network.head is {self.network.head!r}, and SAC needs "soft-actor-critic"')


def defaults(family: Family) -> Config:
    """What works without tuning."""
    match family:
        case "classic":
            return Config(
                batch=128,
                capacity=100_000,
                warmup=500,
                tau=0.01,
                temperature=1.0,
                network=Network(head="soft-actor-critic", hidden=(64, 64)),
            )
        case _:
            return Config()
