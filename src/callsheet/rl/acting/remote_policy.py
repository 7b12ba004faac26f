"""Central inference: actors without a policy of their own ask a server that answers many of them at once.

A request has the observations of an actor's environments, with what a recurrent policy remembers of them; the answer has
actions, their probabilities and what is remembered next. The server itself remembers nothing, so it may be restarted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from callsheet.rl.nets.parameters import Snapshot
from callsheet.rl.nets.sampling import Actions, Floats, Masks
from callsheet.rl.spaces import Discrete, Spaces
from callsheet.runtime import Context, PolicyClient, Schema

ENDPOINT = "policy"
Arrays = dict[str, NDArray[Any]]


def question(spaces: Spaces, state: int) -> Schema:
    """What is asked about one environment."""
    found: Arrays = {f"obs.{key}": np.zeros(one.shape, one.dtype) for key, one in spaces.observations.items()}
    if spaces.masks and isinstance(spaces.action, Discrete):
        found["mask"] = np.zeros(spaces.action.n, np.uint8)
    if state:
        found |= {"state": np.zeros(state, np.float32), "first": np.zeros((), np.uint8)}
    return Schema.of(found)


def answer(spaces: Spaces, state: int) -> Schema:
    """What is answered about it."""
    if isinstance(spaces.action, Discrete):
        action: NDArray[Any] = np.zeros((), np.int64)
    else:
        action = np.zeros(spaces.action.size, np.float32)
    found: Arrays = {"action": action, "logp": np.zeros((), np.float32)}
    if state:
        found["state"] = np.zeros(state, np.float32)
    return Schema.of(found)


class CentralPolicy:
    """Plays by asking."""

    def __init__(self, context: Context, state_size: int) -> None:
        self.state_size = state_size
        self.version = 0
        """Of the policy that answered last."""
        self._client = PolicyClient(context, ENDPOINT)

    def load(self, snapshot: Snapshot) -> None:
        """The server has the parameters."""

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
        """Actions for observations [B, ...], drawn by the server's chance."""
        asked: Arrays = {f"obs.{key}": array for key, array in obs.items()}
        if masks is not None:
            asked["mask"] = masks
        if state is not None and first is not None:
            asked |= {"state": state, "first": first}
        told = self._client.act(asked)
        self.version = told.version
        found = told.arrays
        remembered = np.array(found["state"]) if self.state_size else None
        return Actions(np.array(found["action"]), np.array(found["logp"]), None, remembered)

    def close(self) -> None:
        """Ask no more."""
        self._client.close()
