"""What learners of actor-critics share: the network in PyTorch, its optimizer, statistics, and their checkpoint."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from callsheet.rl.algorithms.learner import Arrays, flat, group, pack, unpack
from callsheet.rl.nets.network import Network
from callsheet.rl.nets.normalize import Normalizer
from callsheet.rl.nets.torch import Adam, TorchNet
from callsheet.rl.spaces import Spaces


class Wishes(Protocol):
    """The settings that are needed here."""

    @property
    def learning_rate(self) -> float: ...
    @property
    def anneal(self) -> bool: ...
    @property
    def normalize(self) -> bool: ...
    @property
    def network(self) -> Network: ...


class ActorCritic:
    """A policy and a value function that are being trained. Equal seeds and batches give equal weights."""

    def __init__(self, spaces: Spaces, wishes: Wishes, *, seed: int, device: str) -> None:
        self.keys = list(spaces.observations)
        self.net = TorchNet(
            spaces, wishes.network, generator=torch.Generator().manual_seed(seed), device=device
        )
        parameters = self.net.parameters
        self.adam = Adam(parameters.values, parameters.grads, lr=wishes.learning_rate, eps=1e-5)
        self.order = np.random.default_rng(seed)
        """The chance by which batches are shuffled."""
        self._normalizer = Normalizer(spaces) if wishes.normalize else None
        self._wishes = wishes

    def begin(self, batch: Arrays) -> None:
        """Before an update: the learning rate of this moment. `progress` is the part of the training that is over."""
        if self._wishes.anneal and "progress" in batch:
            self.adam.lr = self._wishes.learning_rate * max(0.0, 1.0 - float(batch["progress"]))

    def end(self, batch: Arrays) -> None:
        """After it: what was observed changes how observations are scaled from now on."""
        if self._normalizer is not None:
            self._normalizer.update({key: batch[f"obs.{key}"][:-1] for key in self.keys}, batch["valid"])
            self.net.normalize(self._normalizer.snapshot())

    def snapshot(self) -> Arrays:
        """Parameters and statistics."""
        found = self.net.parameters.snapshot()
        return found | self._normalizer.snapshot() if self._normalizer else found

    def state(self) -> Arrays:
        """Weights, optimizer, statistics, and where chance was."""
        return flat(policy=self.snapshot(), adam=self.adam.state(), chance={"order": pack(self.order)})

    def restore(self, arrays: Arrays) -> None:
        """Go on from there."""
        policy = group(arrays, "policy")
        self.net.parameters.load(policy)
        self.adam.restore(group(arrays, "adam"))
        if self._normalizer is not None:
            self._normalizer.load(policy)
            self.net.normalize(policy)
        unpack(self.order, arrays["chance/order"])
