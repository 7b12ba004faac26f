"""The policy that plays: NumPy where that is enough, PyTorch for images and memory."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.nets.network import Network, resolve
from callsheet.rl.nets.parameters import Layout, Snapshot
from callsheet.rl.nets.sampling import Actions, Floats, Masks
from callsheet.rl.spaces import Spaces


class Policy(Protocol):
    """`NumpyPolicy` and `TorchPolicy` in the words they share."""

    state_size: int

    def load(self, snapshot: Snapshot) -> None:
        """Take over parameters and statistics."""

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
    """The quickest that can play this network."""
    resolved = resolve(network, spaces)
    if not (resolved.lstm or Layout(resolved, spaces).inputs.images) and device == "cpu":
        from callsheet.rl.nets.numpy_policy import NumpyPolicy

        return NumpyPolicy(spaces, resolved)
    try:
        from callsheet.rl.nets.torch import TorchPolicy
    except ModuleNotFoundError:
        raise UserError(
            "this policy sees images or remembers, which needs PyTorch, and PyTorch is not installed here",
            fix="pip install 'callsheet[torch]', or use an image that has it for this role",
        ) from None
    return TorchPolicy(spaces, resolved, device=device)
