"""DQN's learner: transitions from the replay in, better values of actions and new priorities out."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from callsheet.rl.algorithms.dqn.config import Config
from callsheet.rl.algorithms.learner import Arrays, flat, group
from callsheet.rl.distributions.scaling import MASKED
from callsheet.rl.nets.torch import Adam, TorchNet, tensors
from callsheet.rl.spaces import Spaces


class DQN:
    """See the package."""

    def __init__(self, spaces: Spaces, config: Config, *, seed: int = 0, device: str = "cpu") -> None:
        self._config = config
        self._keys = list(spaces.observations)
        chance = torch.Generator().manual_seed(seed)
        self._net = TorchNet(spaces, config.network, generator=chance, device=device)
        self._target = TorchNet(spaces, config.network, device=device, trained=False)
        self._renew()
        parameters = self._net.parameters
        self._adam = Adam(parameters.values, parameters.grads, lr=config.learning_rate, eps=1.5e-4)
        self._updates = 0
        self.priorities: NDArray[np.float32] | None = None
        """How wrong the network was about each transition of the latest batch."""

    def update(self, batch: Arrays) -> dict[str, float]:
        """Learn from transitions [B, ...]: `obs.*`, `action`, `reward` and `discount` of the steps in between, `next.*`,
        and the `weight` of each."""
        data = tensors({name: array for name, array in batch.items() if array.ndim}, self._net.device)
        target = self._targets(data)
        self._net.parameters.zero()
        values = self._net.forward({key: data[f"obs.{key}"] for key in self._keys}).policy
        error = errors(values, data["action"], target)
        found = loss(error, data["weight"])
        found.backward()  # type: ignore[no-untyped-call]
        self._adam.step(clip=self._config.max_gradient)
        self._updates += 1
        if self._updates % self._config.target_every == 0:
            self._renew()
        self.priorities = error.detach().abs().cpu().numpy()
        return {"loss": float(found.detach()), "value": float(values.detach().mean())}

    @torch.no_grad()
    def _targets(self, data: dict[str, Tensor]) -> Tensor:
        after = {key: data[f"next.{key}"] for key in self._keys}
        online, target = self._net.forward(after).policy, self._target.forward(after).policy
        return targets(data["reward"], data["discount"], online, target, data.get("next_mask"))

    @torch.no_grad()
    def _renew(self) -> None:
        self._target.parameters.values.copy_(self._net.parameters.values)

    def snapshot(self) -> Arrays:
        """The network's parameters."""
        return self._net.parameters.snapshot()

    def state(self) -> Arrays:
        """Both networks, the optimizer, and how many updates there were."""
        return flat(
            policy=self.snapshot(),
            target=self._target.parameters.snapshot(),
            adam=self._adam.state(),
            count={"updates": np.array(self._updates)},
        )

    def restore(self, arrays: Arrays) -> None:
        """Go on from there."""
        self._net.parameters.load(group(arrays, "policy"))
        self._target.parameters.load(group(arrays, "target"))
        self._adam.restore(group(arrays, "adam"))
        self._updates = int(arrays["count/updates"])


def targets(reward: Tensor, discount: Tensor, online: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """What the value of each action taken should be, [B]. The online network chooses the next action and the target
    network says its value (double Q-learning): one network would believe its own errors. `online` and `target` are
    [B, n], of the observation that was reached; `discount` is 0 where nothing follows."""
    if mask is not None:
        online = online.masked_fill(mask == 0, MASKED)
    best = online.argmax(-1, keepdim=True)
    return reward + discount * target.gather(-1, best).squeeze(-1)


def errors(values: Tensor, action: Tensor, target: Tensor) -> Tensor:
    """How far the values [B, n] of the actions taken are from their targets."""
    return values.gather(-1, action.unsqueeze(-1)).squeeze(-1) - target


def loss(error: Tensor, weight: Tensor) -> Tensor:
    """Huber's: squared near 0, straight beyond 1. `weight` undoes what priorities did to the chances."""
    size = error.abs()
    each = torch.where(size <= 1.0, 0.5 * error.square(), size - 0.5)
    return (weight * each).mean()
