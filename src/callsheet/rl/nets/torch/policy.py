"""Policies with images or an LSTM, for actors: PyTorch computes, NumPy samples, with the same results as `NumpyPolicy`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from callsheet.rl.nets import sampling
from callsheet.rl.nets.network import Network
from callsheet.rl.nets.parameters import Snapshot
from callsheet.rl.nets.sampling import Actions, ActionScaling, CategoricalSampler, Floats, Masks
from callsheet.rl.nets.torch.net import TorchNet
from callsheet.rl.nets.torch.parameters import tensors
from callsheet.rl.spaces import Continuous, Spaces

Observations = Mapping[str, NDArray[np.generic]]


class TorchPolicy:
    """Any policy. `load` a snapshot, then `act`. Equal seeds and parameters give the same actions as `NumpyPolicy`."""

    def __init__(self, spaces: Spaces, network: Network, *, device: torch.device | str = "cpu") -> None:
        self._net = TorchNet(spaces, network, device=device, trained=False)
        self.network = self._net.network
        self.layout = self._net.layout
        self.state_size = self._net.state_size
        self._device = self._net.device
        self._scaling = ActionScaling.of(spaces.action) if isinstance(spaces.action, Continuous) else None
        self._values = True
        self._log_std: Floats = np.zeros(0, np.float32)
        self._samplers: dict[int, CategoricalSampler] = {}

    def load(self, snapshot: Snapshot) -> None:
        """Load parameters and statistics. A separate value network and SAC's critics may be missing."""
        separate = self.network.head == "actor-critic" and not self.network.shared
        self._values = not separate or "value.head.weight" in snapshot
        if self.network.head == "soft-actor-critic" or not self._values:
            self._net.parameters.load_part(snapshot, "policy")
        else:
            self._net.parameters.load(snapshot)
        self._net.set_normalization(snapshot)
        if "policy.log_std" in self._net.parameters.named:
            self._log_std = np.array(snapshot["policy.log_std"], np.float32)

    def act(
        self,
        obs: Observations,
        rng: np.random.Generator,
        *,
        greedy: bool = False,
        masks: Masks | None = None,
        epsilon: float | Floats = 0.0,
        values: bool = True,
        state: Floats | None = None,
        first: NDArray[np.generic] | None = None,
    ) -> Actions:
        """Actions for observations [B, ...]; as `NumpyPolicy.act`.

        A recurrent policy takes its `state` [B, S] (zeros at the very start) and `first` [B] (whether each observation starts
        an episode), and returns the next state."""
        out, value, after = self._run(obs, state, first, values=values and self._values)
        if self.network.head == "q":
            action, best, own = sampling.epsilon_greedy(out, epsilon, rng, greedy=greedy, masks=masks)
            return Actions(action, None, best, after, own)
        if self._scaling is None:
            sampler = self._samplers.get(out.shape[1])
            if sampler is None:
                sampler = self._samplers[out.shape[1]] = CategoricalSampler(*out.shape)
            chosen, logp = sampler.sample(out, rng, greedy=greedy, masks=masks)
            return Actions(chosen, logp, value, after)
        if self.network.head == "soft-actor-critic":
            drawn, logp = sampling.squashed(out, self._scaling, rng, greedy=greedy)
        else:
            drawn, logp = sampling.gaussian(out, self._log_std, self._scaling, rng, greedy=greedy)
        return Actions(drawn, logp, value, after)

    def q(self, obs: Observations) -> Floats:
        """The value of each action, [B, n], with a "q" head and no LSTM."""
        return np.array(self._run(obs, None, None, values=False)[0].T, order="C")

    @torch.inference_mode()
    def _run(
        self,
        obs: Observations,
        state: Floats | None,
        first: NDArray[np.generic] | None,
        *,
        values: bool,
    ) -> tuple[Floats, Floats | None, Floats | None]:
        """The head's output in columns, the values, and the next state."""
        inputs = tensors(obs, self._device)
        if not self.state_size:
            out = self._net.forward(inputs, values=values)
            value = None if out.value is None else out.value.cpu().numpy()
            return _columns(out.policy), value, None
        if state is None or first is None:
            raise TypeError("a recurrent policy needs `state` and `first`")
        # One time step.
        inputs = {key: x.unsqueeze(0) for key, x in inputs.items()}
        begins = torch.from_numpy(first).to(self._device).unsqueeze(0)
        out = self._net.forward(inputs, begins, torch.from_numpy(state).to(self._device), values=values)
        assert out.state is not None
        value = None if out.value is None else out.value[0].cpu().numpy()
        return _columns(out.policy[0]), value, out.state.cpu().numpy()


def _columns(out: torch.Tensor) -> Floats:
    return np.array(out.cpu().numpy().T, order="C")
