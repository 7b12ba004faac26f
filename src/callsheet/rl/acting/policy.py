"""The policy that actors use: NumPy for small networks, PyTorch for images and LSTMs."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.nets.network import Network, resolve
from callsheet.rl.nets.parameters import ParameterLayout, Snapshot
from callsheet.rl.nets.sampling import Actions, Floats, Masks
from callsheet.rl.spaces import Spaces


class Policy(Protocol):
    """What `NumpyPolicy`, `TorchPolicy` and `RemotePolicy` have in common."""

    state_size: int

    def load(self, snapshot: Snapshot) -> None:
        """Load parameters and statistics."""

    def act(
        self,
        obs: dict[str, NDArray[np.generic]],
        rng: np.random.Generator,
        *,
        greedy: bool = False,
        masks: Masks | None = None,
        epsilon: float | Floats = 0.0,
        values: bool = True,
        state: Floats | None = None,
        first: NDArray[np.generic] | None = None,
    ) -> Actions:
        """Actions for observations [B, ...]."""
        ...


def policy_for(spaces: Spaces, network: Network, device: str = "cpu") -> Policy:
    """The fastest implementation that can run this network."""
    resolved = resolve(network, spaces)
    if not (resolved.lstm or ParameterLayout(resolved, spaces).inputs.images) and device == "cpu":
        from callsheet.rl.nets.numpy_policy import NumpyPolicy

        return NumpyPolicy(spaces, resolved)
    try:
        from callsheet.rl.nets.torch import TorchPolicy
    except ModuleNotFoundError:
        raise UserError(
            "this policy uses images or an LSTM, which needs PyTorch, and PyTorch is not installed here",
            fix="pip install 'callsheet[torch]', or use an image that includes it for this role",
        ) from None
    return TorchPolicy(spaces, resolved, device=device)
