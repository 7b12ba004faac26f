"""SAC's settings, with defaults for each family of environments."""

from __future__ import annotations

from callsheet.rl.nets.network import Network
from callsheet.rl.settings import ReplaySettings
from callsheet.rl.spaces import Family


class Config(ReplaySettings, frozen=True, kw_only=True):
    """SAC's settings."""

    environments: int = 1
    rollout: int = 8
    batch: int = 256
    learning_rate: float = 1e-3
    """Adam's learning rate, for policy, critics and temperature."""
    tau: float = 0.005
    """How far the target critics move toward the critics in each update."""
    temperature: float = 0.1
    """Initial entropy temperature. It adapts slowly, with the learning rate: from 1 it takes some ten thousand updates until
    rewards of the usual size matter."""
    target_entropy: float | None = None
    """Policy entropy that the temperature aims for; null: minus the number of action dimensions."""
    publish_every: int = 4
    network: Network = Network(head="soft-actor-critic")

    def __post_init__(self) -> None:
        if self.network.head != "soft-actor-critic":
            raise ValueError(f'network.head is {self.network.head!r}, but SAC needs "soft-actor-critic"')


def defaults(family: Family) -> Config:
    """Defaults that work without tuning."""
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
