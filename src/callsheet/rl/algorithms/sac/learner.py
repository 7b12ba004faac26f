"""SAC's learner. Gradients are computed by hand, and the two critics work in two threads."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from callsheet.rl.algorithms.learner import Arrays, join_groups, take_group
from callsheet.rl.algorithms.sac.config import Config
from callsheet.rl.envs.base import available_cores
from callsheet.rl.nets.parameters import CRITICS
from callsheet.rl.nets.torch import Adam, ManualMLP, TorchNet, TwoThreads, tensors
from callsheet.rl.nets.torch.distributions import SquashedGaussian, SquashedSample
from callsheet.rl.spaces import Continuous, Spaces


class SAC:
    """A policy, two critics, their targets and a temperature."""

    priorities = None
    """It samples uniformly."""

    def __init__(self, spaces: Spaces, config: Config, *, seed: int = 0, device: str = "cpu") -> None:
        self._config = config
        self._keys = list(spaces.observations)
        generator = torch.Generator().manual_seed(seed)
        self._net = TorchNet(spaces, config.network, generator=generator, device=device)
        self._policy, self._next_policy = (
            ManualMLP(self._net.parameters, "policy", self._net.network) for _ in range(2)
        )
        """The same parameters, for observations and for next observations."""
        self._critics = Critics(self._net)
        self._target = TorchNet(spaces, config.network, device=device, trained=False)
        self._target.parameters.values.copy_(self._net.parameters.values)
        self._target_critics = Critics(self._target)
        parameters, rate = self._net.parameters, config.learning_rate
        self._policy_adam = Adam(*parameters.part("policy"), lr=rate)
        self._critic_adam = Adam(*parameters.part("q"), lr=rate)
        self._log_temperature = torch.tensor([math.log(config.temperature)], device=device)
        self._temperature_grad = torch.zeros(1, device=device)
        self._temperature_adam = Adam(self._log_temperature, self._temperature_grad, lr=rate)
        self._noise = torch.Generator(device).manual_seed(seed)
        self._threads = TwoThreads(available_cores() if self._net.device.type == "cpu" else 1)
        assert isinstance(spaces.action, Continuous), "checked by the network"
        size = spaces.action.size
        self._target_entropy = float(-size if config.target_entropy is None else config.target_entropy)

    def update(self, batch: Arrays) -> dict[str, float]:
        """Learn from transitions [B, ...]: `obs.*`, `action`, the n-step `reward` and `discount`, and `next.*`."""
        data = tensors({name: array for name, array in batch.items() if array.ndim}, self._net.device)
        obs = {key: data[f"obs.{key}"] for key in self._keys}
        temperature = self._log_temperature.exp()
        now, later = torch.randn(
            2, *data["action"].shape, generator=self._noise, device=self._net.device
        ).unbind()
        self._net.parameters.zero()
        features, critic_inputs = self._net.features(obs), self._net.features(obs, data["action"])
        target, (policy, sample, values) = self._threads.run(
            lambda: self._targets(data, later, temperature),
            lambda: (*self._sample(features, now), self._critics.values(critic_inputs)),
        )
        chosen, gradients = self._learn_and_evaluate(
            obs, critic_inputs, critic_gradient(values, target), sample.action
        )
        loss = policy_loss(chosen, sample.logp, temperature)
        # The smaller of the two values counts, with the gradient of that critic.
        over_action = torch.where((chosen[0] < chosen[1]).unsqueeze(-1), *gradients) / -len(sample.logp)
        gradient = policy.backward(sample, over_action, temperature / len(sample.logp))
        back = self._policy.backward(
            gradient, parameters=True, inputs=features.requires_grad, threads=self._threads
        )
        if back is not None:
            features.backward(back)  # type: ignore[no-untyped-call]
        self._policy_adam.step()
        entropy = self._update_temperature(sample.logp)
        metrics = {"loss": critic_loss(values, target), "policy_loss": loss}
        metrics |= {"temperature": temperature, "entropy": entropy}
        return {name: float(value) for name, value in metrics.items()}

    def _sample(self, features: Tensor, noise: Tensor) -> tuple[SquashedGaussian, SquashedSample]:
        """Sample the policy's actions."""
        policy = self._net.squashed(self._policy.forward(features))
        return policy, policy.sample(noise)

    @torch.no_grad()
    def _targets(self, data: dict[str, Tensor], noise: Tensor, temperature: Tensor) -> Tensor:
        after = {key: data[f"next.{key}"] for key in self._keys}
        sample = self._net.squashed(self._next_policy.forward(self._net.features(after))).sample(noise)
        values = self._target_critics.values(self._target.features(after, sample.action))
        return soft_targets(data["reward"], data["discount"], values, sample.logp, temperature)

    def _learn_and_evaluate(
        self, obs: dict[str, Tensor], critic_inputs: Tensor, gradient: Tensor, action: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Each critic learns from the gradient of its loss and then evaluates the policy's actions: values [2, B], and for
        each critic the gradients [B, A] over actions between -1 and 1."""
        critics, images = self._critics, critic_inputs.requires_grad
        self._critic_adam.begin()
        if images:  # shared image features must be updated before both use them again
            backs = self._threads.run(
                lambda: critics.learn(0, gradient[0], inputs=True),
                lambda: critics.learn(1, gradient[1], inputs=True),
            )
            critic_inputs.backward(backs[0] + backs[1])  # type: ignore[operator, no-untyped-call]
            self._move(slice(None))
        with torch.no_grad():
            features = self._net.features(obs, action)

        def one_critic(which: int) -> tuple[Tensor, Tensor]:
            if not images:
                critics.learn(which, gradient[which], inputs=False)
                self._move(critics.parts[which])
            return critics.evaluate(which, features)

        (one, first), (two, second) = self._threads.run(lambda: one_critic(0), lambda: one_critic(1))
        begin = self._net.layout.inputs.width
        actions = slice(begin, begin + action.shape[-1])
        return torch.stack((one, two)), (first[:, actions], second[:, actions])

    def _move(self, where: slice) -> None:
        """Step the critics' optimizer; the target critics follow."""
        self._critic_adam.move(where)
        with torch.no_grad():
            target, _ = self._target.parameters.part("q")
            target[where].lerp_(self._net.parameters.part("q")[0][where], self._config.tau)

    def _update_temperature(self, logp: Tensor) -> Tensor:
        """Step the temperature. Its loss is linear, so the gradient needs no autograd."""
        one = torch.ones((), device=logp.device)
        self._temperature_grad[0] = temperature_loss(one, logp, self._target_entropy)
        self._temperature_adam.step()
        return -logp.mean()

    def snapshot(self) -> Arrays:
        """The policy's parameters."""
        return self._net.parameters.snapshot("policy")

    def state(self) -> Arrays:
        """Policy, critics, target critics, temperature, optimizers and random state."""
        return join_groups(
            net=self._net.parameters.snapshot(),
            target=self._target.parameters.snapshot("q"),
            policy_adam=self._policy_adam.state(),
            critic_adam=self._critic_adam.state(),
            temperature_adam=self._temperature_adam.state(),
            temperature={"log": self._log_temperature.cpu().numpy()},
            chance={"noise": self._noise.get_state().numpy()},
        )

    def restore(self, arrays: Arrays) -> None:
        """Continue from such a state."""
        self._net.parameters.load(take_group(arrays, "net"))
        self._target.parameters.load_part(take_group(arrays, "target"), "q")
        self._policy_adam.restore(take_group(arrays, "policy_adam"))
        self._critic_adam.restore(take_group(arrays, "critic_adam"))
        self._temperature_adam.restore(take_group(arrays, "temperature_adam"))
        self._log_temperature.copy_(torch.from_numpy(np.array(arrays["temperature/log"])))
        self._noise.set_state(torch.from_numpy(np.array(arrays["chance/noise"])))


def soft_targets(
    reward: Tensor, discount: Tensor, values: Tensor, logp: Tensor, temperature: float | Tensor
) -> Tensor:
    """Target values of the actions taken: the smaller value of the target critics and an entropy bonus for the policy's next
    action. `discount` is 0 after a terminated step."""
    return reward + discount * (values.amin(0) - temperature * logp)


def critic_loss(values: Tensor, target: Tensor) -> Tensor:
    """Half the mean squared error, summed over both critics."""
    return (values - target).square().sum() * (0.5 / values.shape[1])


def critic_gradient(values: Tensor, target: Tensor) -> Tensor:
    """The gradient of `critic_loss` over the values."""
    return (values - target) / values.shape[1]


def policy_loss(values: Tensor, logp: Tensor, temperature: float | Tensor) -> Tensor:
    """Prefer actions of high value, and random ones where that costs little."""
    return (temperature * logp - values.amin(0)).mean()


def temperature_loss(log_temperature: Tensor, logp: Tensor, target_entropy: float) -> Tensor:
    """Raises the temperature while the policy's entropy is below its target."""
    return -log_temperature * (logp.detach().mean() + target_entropy)


class Critics:
    """Both critics of a network, from `TorchNet.features` on; gradients end there too."""

    def __init__(self, net: TorchNet) -> None:
        self._layers = tuple(ManualMLP(net.parameters, name, net.network) for name in CRITICS)
        first = net.layout.part("q").start
        slices = [net.layout.part(name) for name in CRITICS]
        self.parts = tuple(slice(one.start - first, one.stop - first) for one in slices)
        """The slice of each critic within the parameters of "q"."""

    def values(self, features: Tensor) -> Tensor:
        """[2, B]."""
        return torch.stack([layers.forward(features).squeeze(-1) for layers in self._layers])

    def learn(self, which: int, gradient: Tensor, *, inputs: bool) -> Tensor | None:
        """Set the gradients of one critic from the loss's gradient [B] over its last values; with `inputs`, return the gradient
        over its inputs."""
        return self._layers[which].backward(gradient.unsqueeze(-1), parameters=True, inputs=inputs)

    def evaluate(self, which: int, features: Tensor) -> tuple[Tensor, Tensor]:
        """Values [B] of one critic and their gradients over its inputs [B, width], which are valid until the next call. Its
        parameters stay as they are."""
        values = self._layers[which].forward(features)
        back = self._layers[which].backward(torch.ones_like(values), parameters=False, inputs=True)
        assert back is not None
        return values.squeeze(-1), back
