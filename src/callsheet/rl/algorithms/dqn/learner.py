"""DQN's learner."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from callsheet.rl.algorithms.dqn.config import Config
from callsheet.rl.algorithms.learner import Arrays, join_groups, take_group
from callsheet.rl.nets.sampling import MASKED
from callsheet.rl.nets.torch import Adam, TorchNet, tensors
from callsheet.rl.spaces import Spaces


class DQN:
    """Learns the value of each action, and gives new priorities to the replay."""

    def __init__(self, spaces: Spaces, config: Config, *, seed: int = 0, device: str = "cpu") -> None:
        self._config = config
        self._keys = list(spaces.observations)
        generator = torch.Generator().manual_seed(seed)
        self._net = TorchNet(spaces, config.network, generator=generator, device=device)
        self._target = TorchNet(spaces, config.network, device=device, trained=False)
        self._copy_to_target()
        parameters = self._net.parameters
        self._adam = Adam(parameters.values, parameters.grads, lr=config.learning_rate, eps=1.5e-4)
        self._updates = 0
        self.priorities: NDArray[np.float32] | None = None
        """Absolute TD errors of the latest batch."""

    def update(self, batch: Arrays) -> dict[str, float]:
        """Learn from transitions [B, ...]: `obs.*`, `action`, the n-step `reward` and `discount`, `next.*`, and `weight`."""
        data = tensors({name: array for name, array in batch.items() if array.ndim}, self._net.device)
        target = self._targets(data)
        self._net.parameters.zero()
        values = self._net.forward({key: data[f"obs.{key}"] for key in self._keys}).policy
        error = td_errors(values, data["action"], target)
        loss = huber_loss(error, data["weight"])
        loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step(clip=self._config.max_gradient)
        self._updates += 1
        if self._updates % self._config.target_every == 0:
            self._copy_to_target()
        self.priorities = error.detach().abs().cpu().numpy()
        return {"loss": float(loss.detach()), "value": float(values.detach().mean())}

    @torch.no_grad()
    def _targets(self, data: dict[str, Tensor]) -> Tensor:
        after = {key: data[f"next.{key}"] for key in self._keys}
        online, target = self._net.forward(after).policy, self._target.forward(after).policy
        return double_q_targets(data["reward"], data["discount"], online, target, data.get("next_mask"))

    @torch.no_grad()
    def _copy_to_target(self) -> None:
        self._target.parameters.values.copy_(self._net.parameters.values)

    def snapshot(self) -> Arrays:
        """The network's parameters."""
        return self._net.parameters.snapshot()

    def state(self) -> Arrays:
        """Both networks, the optimizer and the number of updates."""
        return join_groups(
            policy=self.snapshot(),
            target=self._target.parameters.snapshot(),
            adam=self._adam.state(),
            count={"updates": np.array(self._updates)},
        )

    def restore(self, arrays: Arrays) -> None:
        """Continue from such a state."""
        self._net.parameters.load(take_group(arrays, "policy"))
        self._target.parameters.load(take_group(arrays, "target"))
        self._adam.restore(take_group(arrays, "adam"))
        self._updates = int(arrays["count/updates"])


def double_q_targets(
    reward: Tensor, discount: Tensor, online: Tensor, target: Tensor, mask: Tensor | None
) -> Tensor:
    """Target values of the actions taken, [B]. The online network chooses the next action and the target network values it
    (double Q-learning), because one network would believe its own errors. `online` and `target` are [B, n], for the next
    observation; `discount` is 0 after a terminated step."""
    if mask is not None:
        online = online.masked_fill(mask == 0, MASKED)
    best = online.argmax(-1, keepdim=True)
    return reward + discount * target.gather(-1, best).squeeze(-1)


def td_errors(values: Tensor, action: Tensor, target: Tensor) -> Tensor:
    """TD errors of the actions taken, from values [B, n]."""
    return values.gather(-1, action.unsqueeze(-1)).squeeze(-1) - target


def huber_loss(error: Tensor, weight: Tensor) -> Tensor:
    """Quadratic up to 1, linear beyond. `weight` is the importance-sampling weight."""
    size = error.abs()
    each = torch.where(size <= 1.0, 0.5 * error.square(), size - 0.5)
    return (weight * each).mean()
