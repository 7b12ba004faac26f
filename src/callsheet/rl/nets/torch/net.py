"""The networks that learners train: plain functions of named parameters in one tensor, not `nn.Module`s."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from callsheet.rl.nets.network import Network, resolve, state_size
from callsheet.rl.nets.normalize import CLIP, scale
from callsheet.rl.nets.parameters import ParameterLayout, Snapshot
from callsheet.rl.nets.sampling import MAX_LOG_STD, MIN_LOG_STD, ActionScaling
from callsheet.rl.nets.torch import torsos
from callsheet.rl.nets.torch.distributions import Categorical, Gaussian, SquashedGaussian, TensorScaling
from callsheet.rl.nets.torch.numpy_mlp import mlp
from callsheet.rl.nets.torch.parameters import Parameters
from callsheet.rl.spaces import Continuous, Spaces


class Output(NamedTuple):
    """The result of a forward pass, with the observations' leading axes."""

    policy: Tensor
    """Logits [..., n], means [..., A] or action values [..., n], depending on the head."""
    value: Tensor | None
    """[...], the observation's value ("actor-critic")."""
    state: Tensor | None
    """[B, S] after the last step, for a recurrent policy."""


class TorchNet:
    """A network and its parameters on a device.

    Observations have any leading axes; with an LSTM they are [T, B]."""

    def __init__(
        self,
        spaces: Spaces,
        network: Network,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        trained: bool = True,
    ) -> None:
        self.network = resolve(network, spaces)
        self.state_size = state_size(self.network)
        self.layout = ParameterLayout(self.network, spaces)
        self.device = torch.device(device)
        self.parameters = Parameters(self.layout, generator=generator, device=device, trained=trained)
        self._axes = {key: len(array.shape) for key, array in spaces.observations.items()}
        self._act = torch.tanh if self.network.activation == "tanh" else torch.relu
        self._numpy_mlp = (
            self.network.activation == "tanh" and not self.network.lstm and self.device.type == "cpu"
        )
        self._norms: dict[str, tuple[Tensor, Tensor]] = {}
        self._scale: TensorScaling | None = None
        if isinstance(spaces.action, Continuous):
            scaling = ActionScaling.of(spaces.action)
            middle, half = torch.from_numpy(scaling.middle), torch.from_numpy(scaling.half)
            self._scale = TensorScaling(middle.to(device), half.to(device), scaling.trivial)

    def set_normalization(self, snapshot: Snapshot) -> None:
        """Normalize observations by the statistics in a snapshot (`Normalizer.snapshot`) from now on."""
        self._norms.clear()
        for vector in self.layout.inputs.vectors:
            scales = scale(snapshot, vector.key) if vector.normal else None
            if scales is not None:
                mean, factor = (torch.from_numpy(one).to(self.device) for one in scales)
                self._norms[vector.key] = (mean, factor)

    def forward(
        self,
        obs: Mapping[str, Tensor],
        first: Tensor | None = None,
        state: Tensor | None = None,
        *,
        values: bool = True,
    ) -> Output:
        """Policy (or action values) and value. `first` [T, B] and `state` [B, S] are for recurrent networks."""
        joined = self._join(obs)
        if self.network.head == "q":
            heads = ("q.advantage", "q.value") if self.network.dueling else ("q.head",)
            out, state = self._run("torso", heads, obs, joined, first, state)
            return Output(self._values(out), None, state)
        if self.network.shared:
            out, state = self._run("torso", ("policy.head", "value.head"), obs, joined, first, state)
            return Output(out[..., :-1], out[..., -1], state)
        policy, _ = self._run("policy", ("policy.head",), obs, joined)
        if self.network.head == "soft-actor-critic" or not values:
            return Output(policy, None, None)
        value, _ = self._run("value", ("value.head",), obs, joined)
        return Output(policy, value.squeeze(-1), None)

    def distribution(self, policy: Tensor, masks: Tensor | None = None) -> Categorical | Gaussian:
        """The distribution of an actor-critic's `Output.policy`."""
        if self._scale is None:
            return Categorical(policy, masks)
        return Gaussian(policy, self.parameters["policy.log_std"], self._scale)

    def squashed(self, policy: Tensor) -> SquashedGaussian:
        """The distribution of a soft actor-critic's `Output.policy`."""
        assert self._scale is not None
        mean, log_std = policy.chunk(2, dim=-1)
        return SquashedGaussian(mean, log_std.clamp(MIN_LOG_STD, MAX_LOG_STD), self._scale)

    def features(self, obs: Mapping[str, Tensor], action: Tensor | None = None) -> Tensor:
        """The input of a soft actor-critic's `ManualMLP`s, [..., width]: of its policy or, with an action in the
        environment's units, of its critics."""
        if action is None:
            return self._features("policy", obs, self._join(obs))
        assert self._scale is not None
        return self._features("q", obs, self._join(obs, self._scale.to_policy(action)))

    def _run(
        self,
        part: str,
        heads: tuple[str, ...],
        obs: Mapping[str, Tensor],
        joined: Tensor | None,
        first: Tensor | None = None,
        state: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The heads' outputs side by side, and the next state."""
        x = self._features(part, obs, joined)
        if self._numpy_mlp:
            hidden = (f"{part}.mlp.{index}" for index in range(len(self.network.hidden or ())))
            return mlp(x, self._weights_and_biases(*hidden), self._weights_and_biases(*heads)), None
        for index in range(len(self.network.hidden or ())):
            x = self._act(self._linear(f"{part}.mlp.{index}", x))
        if self.network.lstm:
            if first is None or state is None:
                raise TypeError("a recurrent network needs `first` and `state`")
            x, state = torsos.lstm(self.parameters, part, x, first, state)
        parts = [self._linear(head, x) for head in heads]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1), state

    def _weights_and_biases(self, *layers: str) -> list[Tensor]:
        return [self.parameters.named[f"{layer}.{what}"] for layer in layers for what in ("weight", "bias")]

    def _join(self, obs: Mapping[str, Tensor], extra: Tensor | None = None) -> Tensor | None:
        """All vectors side by side, normalized, [..., width]."""
        parts = []
        for key, size, factor, _ in self.layout.inputs.vectors:
            x = obs[key]
            if self._axes[key] != 1:
                x = x.reshape(*self._lead(key, x), size)
            if x.dtype != torch.float32:
                x = x.float()
            if factor != 1.0:
                x = x * factor
            if key in self._norms:
                mean, inverse = self._norms[key]
                x = ((x - mean) * inverse).clamp(-CLIP, CLIP)
            parts.append(x)
        if extra is not None:
            parts.append(extra)
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1) if parts else None

    def _features(self, part: str, obs: Mapping[str, Tensor], joined: Tensor | None) -> Tensor:
        """Vectors and image features, side by side."""
        parts = [] if joined is None else [joined]
        torso = torsos.nature if self.network.torso == "nature" else torsos.resnet
        for image in self.layout.inputs.images:
            frames = obs[image.key]
            name = f"{part}.{self.network.torso}.{image.key}"
            features = torso(self.parameters, name, image, torsos.pixels(image, frames))
            parts.append(features.view(*self._lead(image.key, frames), -1))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _lead(self, key: str, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape[: x.dim() - self._axes[key]])

    def _values(self, out: Tensor) -> Tensor:
        if not self.network.dueling:
            return out
        advantages = out[..., :-1]
        # Advantages are 0 on average.
        return out[..., -1:] + advantages - advantages.mean(-1, keepdim=True)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        named = self.parameters.named
        return functional.linear(x, named[f"{name}.weight"], named[f"{name}.bias"])
