"""What PPO and IMPALA share: the network, its optimizer, observation statistics, and their checkpoint."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from callsheet.rl.algorithms.learner import Arrays, join_groups, restore_rng, rng_state, take_group
from callsheet.rl.nets.network import Network
from callsheet.rl.nets.normalize import Normalizer
from callsheet.rl.nets.torch import Adam, TorchNet
from callsheet.rl.spaces import Spaces


class ActorCriticSettings(Protocol):
    """The settings it uses."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def anneal(self) -> bool: ...
    @property
    def normalize(self) -> bool: ...
    @property
    def network(self) -> Network: ...


class ActorCriticLearner:
    """A policy and a value function in training. Equal seeds and batches give equal weights."""

    def __init__(self, spaces: Spaces, settings: ActorCriticSettings, *, seed: int, device: str) -> None:
        self._keys = list(spaces.observations)
        self._net = TorchNet(
            spaces, settings.network, generator=torch.Generator().manual_seed(seed), device=device
        )
        parameters = self._net.parameters
        self._adam = Adam(parameters.values, parameters.grads, lr=settings.learning_rate, eps=1e-5)
        self._shuffle = np.random.default_rng(seed)
        """Shuffles batches."""
        self._normalizer = Normalizer(spaces) if settings.normalize else None
        self._settings = settings

    def _begin_update(self, batch: Arrays) -> None:
        """Set the learning rate. `progress` is how much of the training is done."""
        if self._settings.anneal and "progress" in batch:
            self._adam.lr = self._settings.learning_rate * max(0.0, 1.0 - float(batch["progress"]))

    def _end_update(self, batch: Arrays) -> None:
        """Add the batch's observations to the statistics that normalize them from now on."""
        if self._normalizer is not None:
            self._normalizer.update({key: batch[f"obs.{key}"][:-1] for key in self._keys}, batch["valid"])
            self._net.set_normalization(self._normalizer.snapshot())

    def snapshot(self) -> Arrays:
        """Parameters and statistics."""
        parameters = self._net.parameters.snapshot()
        return parameters | self._normalizer.snapshot() if self._normalizer else parameters

    def state(self) -> Arrays:
        """Parameters, optimizer, statistics and random state."""
        return join_groups(
            policy=self.snapshot(), adam=self._adam.state(), chance={"order": rng_state(self._shuffle)}
        )

    def restore(self, arrays: Arrays) -> None:
        """Continue from such a state."""
        policy = take_group(arrays, "policy")
        self._net.parameters.load(policy)
        self._adam.restore(take_group(arrays, "adam"))
        if self._normalizer is not None:
            self._normalizer.load(policy)
            self._net.set_normalization(policy)
        restore_rng(self._shuffle, arrays["chance/order"])
