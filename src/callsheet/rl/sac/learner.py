"""SAC's learner: transitions from the replay in, a better policy out."""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from torch import Tensor

from callsheet.errors import UserError
from callsheet.rl.envs.share import processors
from callsheet.rl.learner import Arrays, flat, group
from callsheet.rl.nets.torch import Adam, Layers, Pair, TorchNet, tensors
from callsheet.rl.sac.config import Config
from callsheet.rl.sac.critics import Critics
from callsheet.rl.sac.losses import critic_loss, policy_loss, targets, temperature_loss
from callsheet.rl.spaces import Continuous, Spaces


class SAC:
    """See the package."""

    priorities = None
    """Its transitions are drawn with equal chances."""

    def __init__(self, spaces: Spaces, config: Config, *, seed: int = 0, device: str = "cpu") -> None:
        if not isinstance(spaces.action, Continuous):
            raise UserError(
                "SAC needs continuous actions, and this environment has a finite number of them",
                fix="use dqn, ppo or impala",
            )
        self._config = config
        self._keys = list(spaces.observations)
        chance = torch.Generator().manual_seed(seed)
        self._net = TorchNet(spaces, config.network, generator=chance, device=device)
        self._policy, self._later = (
            Layers(self._net.parameters, "policy", self._net.network) for _ in range(2)
        )
        """For observations, and for those that came after them."""
        self._critics = Critics(self._net)
        self._fixed = _fixed(self._net)
        """As the policy's loss sees what the critics see: their gradients are not wanted then."""
        self._target = TorchNet(spaces, config.network, device=device, trained=False)
        self._target.parameters.values.copy_(self._net.parameters.values)
        self._late = Critics(self._target)
        parameters, rate = self._net.parameters, config.learning_rate
        self._policy_adam = Adam(*parameters.part("policy"), lr=rate)
        self._critic_adam = Adam(*parameters.part("q"), lr=rate)
        self._log_temperature = torch.tensor([math.log(config.temperature)], device=device)
        self._temperature_grad = torch.zeros(1, device=device)
        self._temperature_adam = Adam(self._log_temperature, self._temperature_grad, lr=rate)
        self._noise = torch.Generator(device).manual_seed(seed)
        self._pair = Pair(processors() if self._net.device.type == "cpu" else 1)
        size = spaces.action.size
        self._target_entropy = float(-size if config.target_entropy is None else config.target_entropy)

    def update(self, batch: Arrays) -> dict[str, float]:
        """Learn from transitions [B, ...]: `obs.*`, `action`, `reward` and `discount` of the steps in between, `next.*`."""
        data = tensors({name: array for name, array in batch.items() if array.ndim}, self._net.device)
        obs = {key: data[f"obs.{key}"] for key in self._keys}
        temperature = self._log_temperature.exp()
        self._net.parameters.zero()
        seen, judged = self._net.seen(obs), self._net.seen(obs, data["action"])
        target, (said, values) = self._pair.both(
            lambda: self._targets(data, temperature),
            lambda: (self._policy.forward(seen), self._critics.values(judged)),
        )
        critic = critic_loss(values, target)
        self._critics.learn(torch.autograd.grad(critic, values)[0], judged, self._pair)
        self._critic_adam.step()
        action, logp = self._net.squashed(said.requires_grad_()).sample(self._noise)
        judged = self._fixed.seen(obs, action)
        values = self._critics.values(judged, self._pair)
        loss = policy_loss(values, logp, temperature)
        blame = self._critics.blame(torch.autograd.grad(loss, values, retain_graph=True)[0], self._pair)
        slope = torch.autograd.grad([loss, judged], said, [torch.ones_like(loss), blame])[0]
        back = self._policy.backward(slope, parameters=True, inputs=seen.requires_grad, pair=self._pair)
        if back is not None:
            seen.backward(back)  # type: ignore[no-untyped-call]
        self._policy_adam.step()
        entropy = self._adjust(logp)
        with torch.no_grad():
            followed, _ = self._target.parameters.part("q")
            followed.lerp_(self._net.parameters.part("q")[0], self._config.tau)
        told = {"loss": critic, "policy_loss": loss, "temperature": temperature, "entropy": entropy}
        return {name: float(value.detach()) for name, value in told.items()}

    @torch.no_grad()
    def _targets(self, data: dict[str, Tensor], temperature: Tensor) -> Tensor:
        after = {key: data[f"next.{key}"] for key in self._keys}
        said = self._later.forward(self._net.seen(after))
        action, logp = self._net.squashed(said).sample(self._noise)
        values = self._late.values(self._target.seen(after, action))
        return targets(data["reward"], data["discount"], values, logp, temperature)

    def _adjust(self, logp: Tensor) -> Tensor:
        """A step of the temperature; its loss is a straight line, whose slope needs no autograd."""
        one = torch.ones((), device=logp.device)
        self._temperature_grad[0] = temperature_loss(one, logp, self._target_entropy)
        self._temperature_adam.step()
        return -logp.detach().mean()

    def snapshot(self) -> Arrays:
        """The policy's parameters."""
        return self._net.parameters.snapshot("policy")

    def state(self) -> Arrays:
        """Policy, critics, temperature, their optimisers, the critics that give the targets, and where chance was."""
        return flat(
            net=self._net.parameters.snapshot(),
            target=self._target.parameters.snapshot("q"),
            policy_adam=self._policy_adam.state(),
            critic_adam=self._critic_adam.state(),
            temperature_adam=self._temperature_adam.state(),
            temperature={"log": self._log_temperature.cpu().numpy()},
            chance={"noise": self._noise.get_state().numpy()},
        )

    def restore(self, arrays: Arrays) -> None:
        """Go on from there."""
        self._net.parameters.load(group(arrays, "net"))
        self._target.parameters.load_part(group(arrays, "target"), "q")
        self._policy_adam.restore(group(arrays, "policy_adam"))
        self._critic_adam.restore(group(arrays, "critic_adam"))
        self._temperature_adam.restore(group(arrays, "temperature_adam"))
        self._log_temperature.copy_(torch.from_numpy(np.array(arrays["temperature/log"])))
        self._noise.set_state(torch.from_numpy(np.array(arrays["chance/noise"])))


def _fixed(net: TorchNet) -> TorchNet:
    """The same network in the same memory, through which gradients pass to its inputs but not to its parameters."""
    found = copy.copy(net)
    found.parameters = copy.copy(net.parameters)
    found.parameters.named = {name: leaf.detach() for name, leaf in net.parameters.named.items()}
    return found
