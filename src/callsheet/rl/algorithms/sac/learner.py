"""SAC's learner: transitions from the replay in, a better policy out."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from callsheet.rl.algorithms.learner import Arrays, flat, group
from callsheet.rl.algorithms.sac.config import Config
from callsheet.rl.distributions.torch import Drawn, SquashedGaussian
from callsheet.rl.envs.base import processors
from callsheet.rl.nets.parameters import CRITICS
from callsheet.rl.nets.torch import Adam, Layers, Pair, TorchNet, tensors
from callsheet.rl.spaces import Continuous, Spaces


class SAC:
    """See the package."""

    priorities = None
    """Its transitions are drawn with equal chances."""

    def __init__(self, spaces: Spaces, config: Config, *, seed: int = 0, device: str = "cpu") -> None:
        self._config = config
        self._keys = list(spaces.observations)
        chance = torch.Generator().manual_seed(seed)
        self._net = TorchNet(spaces, config.network, generator=chance, device=device)
        self._policy, self._later = (
            Layers(self._net.parameters, "policy", self._net.network) for _ in range(2)
        )
        """For observations, and for those that came after them."""
        self._critics = Critics(self._net)
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
        assert isinstance(spaces.action, Continuous), "the network was refused otherwise"
        size = spaces.action.size
        self._target_entropy = float(-size if config.target_entropy is None else config.target_entropy)

    def update(self, batch: Arrays) -> dict[str, float]:
        """Learn from transitions [B, ...]: `obs.*`, `action`, `reward` and `discount` of the steps in between, `next.*`."""
        data = tensors({name: array for name, array in batch.items() if array.ndim}, self._net.device)
        obs = {key: data[f"obs.{key}"] for key in self._keys}
        temperature = self._log_temperature.exp()
        now, later = torch.randn(
            2, *data["action"].shape, generator=self._noise, device=self._net.device
        ).unbind()
        self._net.parameters.zero()
        seen, judged = self._net.seen(obs), self._net.seen(obs, data["action"])
        target, (policy, drawn, values) = self._pair.both(
            lambda: self._targets(data, later, temperature),
            lambda: (*self._play(seen, now), self._critics.values(judged)),
        )
        chosen, slopes = self._learn_and_judge(obs, judged, critic_slope(values, target), drawn.action)
        loss = policy_loss(chosen, drawn.logp, temperature)
        # Of two values the smaller one counts, with the slope of the critic who said so.
        over_action = torch.where((chosen[0] < chosen[1]).unsqueeze(-1), *slopes) / -len(drawn.logp)
        slope = policy.back(drawn, over_action, temperature / len(drawn.logp))
        back = self._policy.backward(slope, parameters=True, inputs=seen.requires_grad, pair=self._pair)
        if back is not None:
            seen.backward(back)  # type: ignore[no-untyped-call]
        self._policy_adam.step()
        entropy = self._adjust(drawn.logp)
        told = {"loss": critic_loss(values, target), "policy_loss": loss}
        told |= {"temperature": temperature, "entropy": entropy}
        return {name: float(value) for name, value in told.items()}

    def _play(self, seen: Tensor, noise: Tensor) -> tuple[SquashedGaussian, Drawn]:
        """The policy's own actions."""
        policy = self._net.squashed(self._policy.forward(seen))
        return policy, policy.draw(noise)

    @torch.no_grad()
    def _targets(self, data: dict[str, Tensor], noise: Tensor, temperature: Tensor) -> Tensor:
        after = {key: data[f"next.{key}"] for key in self._keys}
        drawn = self._net.squashed(self._later.forward(self._net.seen(after))).draw(noise)
        values = self._late.values(self._target.seen(after, drawn.action))
        return targets(data["reward"], data["discount"], values, drawn.logp, temperature)

    def _learn_and_judge(
        self, obs: dict[str, Tensor], judged: Tensor, slope: Tensor, action: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Each critic learns from its slope over what it said, and then judges the policy's own actions: values
        [2, B], and for each critic the slopes [B, A] over actions between -1 and 1."""
        critics, pictures = self._critics, judged.requires_grad
        self._critic_adam.begin()
        if pictures:  # what both see is learned too, and must be before they look again
            backs = self._pair.both(
                lambda: critics.learn(0, slope[0], inputs=True),
                lambda: critics.learn(1, slope[1], inputs=True),
            )
            judged.backward(backs[0] + backs[1])  # type: ignore[operator, no-untyped-call]
            self._move(slice(None))
        with torch.no_grad():
            seen = self._net.seen(obs, action)

        def track(which: int) -> tuple[Tensor, Tensor]:
            if not pictures:
                critics.learn(which, slope[which], inputs=False)
                self._move(critics.parts[which])
            return critics.judge(which, seen)

        (one, first), (two, second) = self._pair.both(lambda: track(0), lambda: track(1))
        begin = self._net.layout.inputs.width
        actions = slice(begin, begin + action.shape[-1])
        return torch.stack((one, two)), (first[:, actions], second[:, actions])

    def _move(self, where: slice) -> None:
        """An optimizer's step of the critics, which those that give the targets follow."""
        self._critic_adam.move(where)
        with torch.no_grad():
            followed, _ = self._target.parameters.part("q")
            followed[where].lerp_(self._net.parameters.part("q")[0][where], self._config.tau)

    def _adjust(self, logp: Tensor) -> Tensor:
        """A step of the temperature; its loss is a straight line, whose slope needs no autograd."""
        one = torch.ones((), device=logp.device)
        self._temperature_grad[0] = temperature_loss(one, logp, self._target_entropy)
        self._temperature_adam.step()
        return -logp.mean()

    def snapshot(self) -> Arrays:
        """The policy's parameters."""
        return self._net.parameters.snapshot("policy")

    def state(self) -> Arrays:
        """Policy, critics, temperature, their optimizers, the critics that give the targets, and where chance was."""
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


def targets(
    reward: Tensor, discount: Tensor, values: Tensor, logp: Tensor, temperature: float | Tensor
) -> Tensor:
    """What the value of each action taken should be: of the target critics the one that hopes for less, and a bonus for
    the randomness of the policy's next action. `discount` is 0 where nothing follows."""
    return reward + discount * (values.amin(0) - temperature * logp)


def critic_loss(values: Tensor, target: Tensor) -> Tensor:
    """Half the mean squared error, of both critics together."""
    return (values - target).square().sum() * (0.5 / values.shape[1])


def critic_slope(values: Tensor, target: Tensor) -> Tensor:
    """Of `critic_loss`, over the values."""
    return (values - target) / values.shape[1]


def policy_loss(values: Tensor, logp: Tensor, temperature: float | Tensor) -> Tensor:
    """The policy's own actions should have a high value, and be random where that costs little."""
    return (temperature * logp - values.amin(0)).mean()


def temperature_loss(log_temperature: Tensor, logp: Tensor, target_entropy: float) -> Tensor:
    """Grows the temperature while the policy is less random than it should be."""
    return -log_temperature * (logp.detach().mean() + target_entropy)


class Critics:
    """Both critics of a network. They begin with what `TorchNet.seen` gives; gradients end there too."""

    def __init__(self, net: TorchNet) -> None:
        self._layers = tuple(Layers(net.parameters, name, net.network) for name in CRITICS)
        first = net.layout.part("q").start
        wheres = [net.layout.part(name) for name in CRITICS]
        self.parts = tuple(slice(one.start - first, one.stop - first) for one in wheres)
        """Where the parameters of each lie among those of "q"."""

    def values(self, seen: Tensor) -> Tensor:
        """[2, B]."""
        return torch.stack([layers.forward(seen).squeeze(-1) for layers in self._layers])

    def learn(self, which: int, slope: Tensor, *, inputs: bool) -> Tensor | None:
        """Set the gradients of one, from a loss's slope [B] over its last values; and give that over what it saw, if
        it is asked for."""
        return self._layers[which].backward(slope.unsqueeze(-1), parameters=True, inputs=inputs)

    def judge(self, which: int, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Values [B] of one, and their slopes over what it saw [B, width]; it stays as it is. The slopes live until it
        is called again."""
        values = self._layers[which].forward(seen)
        back = self._layers[which].backward(torch.ones_like(values), parameters=False, inputs=True)
        assert back is not None
        return values.squeeze(-1), back
