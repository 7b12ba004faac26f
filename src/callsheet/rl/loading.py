"""A trained policy for one's own program: `policy = load_policy("runs/ppo-cartpole-v1/xyz")`, then `policy(observation)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.acting.policy import Policy, policy_for
from callsheet.rl.algorithms import algorithm
from callsheet.rl.checkpoints import find_policy
from callsheet.rl.settings import Training
from callsheet.rl.spaces import Array, Discrete, Spaces
from callsheet.store import BadSet, open_store


class LoadedPolicy:
    """Call it with an observation of the environment it was trained in; what comes back is for `env.step`."""

    def __init__(
        self,
        policy: Policy,
        spaces: Spaces,
        training: Training,
        info: Mapping[str, Any],
        checkpoint: str,
        *,
        sampled: bool = False,
        seed: int | None = None,
    ) -> None:
        self.policy = policy
        """What computes it, for batches of observations: `policy.policy.act({"observation": array}, rng)`."""
        self.spaces = spaces
        self.training = training
        """How it was trained."""
        self.info = info
        """What its checkpoint tells: steps, seconds, evaluation, versions."""
        self.checkpoint = checkpoint
        """The checkpoint's name."""
        self._greedy = not sampled
        self._rng = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        """An episode begins: a policy with a memory forgets. Others need not be told."""
        size = self.policy.state_size
        self._state = np.zeros((1, size), np.float32) if size else None
        self._first = np.ones(1, np.uint8)

    def __call__(self, observation: Any, mask: Any = None) -> Any:
        """The action: an integer, or an array within the environment's limits. `mask` is 1 where an action is allowed."""
        masks = None if mask is None else np.asarray(mask, np.uint8)[None]
        acted = self.policy.act(
            self._batch(observation),
            self._rng,
            greedy=self._greedy,
            masks=masks,
            values=False,
            state=self._state,
            first=self._first,
        )
        self._state, self._first = acted.state, np.zeros(1, np.uint8)
        if isinstance(self.spaces.action, Discrete):
            return int(acted.action[0])
        return np.clip(acted.action[0], self.spaces.action.low, self.spaces.action.high).astype(np.float32)

    def _batch(self, observation: Any) -> dict[str, NDArray[Any]]:
        parts = dict(_parts(observation))
        if list(self.spaces.observations) == ["observation"] and list(parts) == [""]:
            parts = {"observation": parts[""]}
        return {
            key: _array(key, array, parts.get(key))[None] for key, array in self.spaces.observations.items()
        }


def _parts(observation: Any, above: str = "") -> Any:
    """Every array with its name; names of nested ones are joined by dots."""
    if isinstance(observation, Mapping):
        inner = observation.items()
    elif isinstance(observation, tuple):
        inner = dict(enumerate(observation)).items()
    else:
        yield above, observation
        return
    for key, value in inner:
        yield from _parts(value, f"{above}.{key}" if above else str(key))


def _array(key: str, wanted: Array, value: Any) -> NDArray[Any]:
    if value is None:
        raise UserError(f"the observation has no {key!r}", fix="give what the environment gave in training")
    found = np.asarray(value)
    if found.ndim == 0 and len(wanted.shape) == 1 and wanted.high == 1.0:
        spread = np.zeros(wanted.shape, wanted.dtype)  # a choice among so many
        spread[int(found)] = 1
        return spread
    if found.shape != wanted.shape:
        raise UserError(
            f"the observation {key!r} has the shape {found.shape}, and the policy takes {wanted.shape}",
            fix="give one observation, as the environment gave it in training",
        )
    return found.astype(wanted.dtype, copy=False)


def load_policy(
    results: str, *, checkpoint: str = "best", sampled: bool = False, seed: int | None = None
) -> LoadedPolicy:
    """The policy of a training. `results` is the run's folder, or its URL in a cloud.

    `checkpoint` is `best` (by evaluation; the newest where there was none), `newest`, or a name. By itself the policy
    takes the action that it thinks best; with `sampled` it draws, as actors do in training. PyTorch is needed for
    images and LSTMs only.
    """
    try:
        arrays, found = find_policy(open_store(str(results)), checkpoint)
    except BadSet as error:
        raise UserError(error.message, fix="take another: checkpoint='newest', or one by its name") from None
    try:
        training = msgspec.convert(dict(found.info["training"]), Training)
    except (KeyError, msgspec.ValidationError) as error:
        raise UserError(
            f"the checkpoint {found.name} was not written by this version's training: {error}",
            fix="load it with the version that wrote it",
        ) from None
    spaces = _spaces(found.info, training)
    policy = policy_for(spaces, algorithm(training.algorithm).settings(training).network)
    policy.load(arrays)
    return LoadedPolicy(policy, spaces, training, found.info, found.name, sampled=sampled, seed=seed)


def _spaces(info: Mapping[str, Any], training: Training) -> Spaces:
    """As the checkpoint tells, so that the environment need not be installed; else the environment is asked."""
    if "spaces" in info:
        return msgspec.convert(info["spaces"], Spaces)
    from callsheet.rl.envs import spaces_of

    return spaces_of(training.env, options=training.options)
