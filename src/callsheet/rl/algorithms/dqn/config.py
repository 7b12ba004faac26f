"""DQN's settings, with defaults for each family of environments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.nets.network import Network
from callsheet.rl.settings import PrioritizedReplaySettings
from callsheet.rl.spaces import Family


class Config(PrioritizedReplaySettings, frozen=True, kw_only=True):
    """DQN's settings."""

    updates_per_step: float = 0.125
    capacity: int = 500_000
    warmup: int = 2_000
    n_step: int = 3
    learning_rate: float = 5e-4
    epsilon: float = 0.4
    """Share of random actions in the environment that explores most."""
    epsilon_spread: float = 7.0
    """The environment that explores least uses `epsilon` to the power of 1 + this; the others lie in between. A single
    environment uses the middle."""
    target_every: int = 500
    """Updates between two copies of the network to the target network."""
    max_gradient: float = 10.0
    """Maximum gradient norm; larger gradients are clipped."""
    network: Network = Network(head="q", dueling=True)

    def __post_init__(self) -> None:
        if self.network.head != "q":
            raise ValueError(f'network.head is {self.network.head!r}, but DQN needs "q"')
        if self.network.lstm:
            raise ValueError(
                f"network.lstm is {self.network.lstm}, but DQN learns from single transitions: use 0"
            )

    def epsilons(self, *, actor: int, actors: int) -> NDArray[np.float32]:
        """As in Ape-X. Every actor has environments that explore a lot and some that hardly do, so that both remain when
        actors come and go."""
        total = actors * self.environments
        number = np.arange(self.environments) * actors + actor % actors
        power = 1.0 + self.epsilon_spread * (number / (total - 1) if total > 1 else np.full(1, 0.5))
        shares: NDArray[np.float32] = np.power(self.epsilon, power).astype(np.float32)
        return shares


def defaults(family: Family) -> Config:
    """Defaults that work without tuning."""
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
