"""Central inference: actors without a policy of their own send observations to a server that batches them.

A request has the observations of an actor's environments and the state of a recurrent policy; the response has actions,
their log-probabilities and the next state. The server keeps no state, so it may be restarted at any time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from callsheet.rl import endpoints
from callsheet.rl.nets.parameters import Snapshot
from callsheet.rl.nets.sampling import Actions, Floats, Masks
from callsheet.rl.spaces import Discrete, Spaces
from callsheet.runtime import Context, PolicyClient, Schema

Arrays = dict[str, NDArray[Any]]


def request_schema(spaces: Spaces, state: int) -> Schema:
    """What an actor sends for one environment; `state` is the size of a recurrent policy's state."""
    arrays: Arrays = {
        f"obs.{key}": np.zeros(one.shape, one.dtype) for key, one in spaces.observations.items()
    }
    if spaces.masks and isinstance(spaces.action, Discrete):
        arrays["mask"] = np.zeros(spaces.action.n, np.uint8)
    if state:
        arrays |= {"state": np.zeros(state, np.float32), "first": np.zeros((), np.uint8)}
    return Schema.of(arrays)


def response_schema(spaces: Spaces, state: int) -> Schema:
    """What the server answers for one environment."""
    if isinstance(spaces.action, Discrete):
        action: NDArray[Any] = np.zeros((), np.int64)
    else:
        action = np.zeros(spaces.action.size, np.float32)
    arrays: Arrays = {"action": action, "logp": np.zeros((), np.float32)}
    if state:
        arrays["state"] = np.zeros(state, np.float32)
    return Schema.of(arrays)


class RemotePolicy:
    """A policy that asks the policy server."""

    def __init__(self, context: Context, state_size: int) -> None:
        self.state_size = state_size
        self.version = 0
        """Of the policy that answered last."""
        self._client = PolicyClient(context, endpoints.POLICY)

    def load(self, snapshot: Snapshot) -> None:
        """Do nothing: the server has the parameters."""

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
        """Actions for observations [B, ...]. The server samples them."""
        request: Arrays = {f"obs.{key}": array for key, array in obs.items()}
        if masks is not None:
            request["mask"] = masks
        if state is not None and first is not None:
            request |= {"state": state, "first": first}
        response = self._client.act(request)
        self.version = response.version
        arrays = response.arrays
        next_state = np.array(arrays["state"]) if self.state_size else None
        return Actions(np.array(arrays["action"]), np.array(arrays["logp"]), None, next_state)

    def close(self) -> None:
        """Disconnect."""
        self._client.close()
