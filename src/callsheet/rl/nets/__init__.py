"""Policies and values: what they are (`shape`), how actors run them (`numpy`), how learners train them (`torch`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.nets.numpy import NumpyPolicy
from callsheet.rl.nets.sampling import Actions, Floats, Masks
from callsheet.rl.nets.shape import Network, inputs, resolve
from callsheet.rl.spaces import Spaces

__all__ = ["Actions", "Network", "Policy", "make_policy"]


class Policy(Protocol):
    """What an actor needs of a policy, whoever computes it."""

    network: Network
    state_size: int
    """Numbers per environment that it carries from step to step; 0 if it is not recurrent."""

    def load(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None: ...

    def act(
        self,
        obs: Mapping[str, NDArray[np.generic]],
        rng: np.random.Generator,
        *,
        greedy: bool = False,
        masks: Masks | None = None,
        epsilon: float | Floats = 0.0,
        values: bool = True,
        state: Floats | None = None,
        first: NDArray[np.generic] | None = None,
    ) -> Actions: ...


def make_policy(spaces: Spaces, network: Network) -> Policy:
    """NumPy's where that is possible, so that nothing of PyTorch is loaded; else PyTorch's."""
    resolved = resolve(network, spaces)
    if not resolved.lstm and not inputs(resolved, spaces).images:
        return NumpyPolicy(spaces, network)
    from callsheet.rl.nets.torch.policy import TorchPolicy

    return TorchPolicy(spaces, network)
