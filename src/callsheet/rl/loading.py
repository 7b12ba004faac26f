"""Use a trained policy in your own program: `policy = load_policy("runs/ppo-cartpole-v1/xyz")`, then `policy(observation)`."""

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
    """Call it with an observation of its environment; it returns an action for `env.step`."""

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
        """For batches of observations: `policy.policy.act({"observation": array}, rng)`."""
        self.spaces = spaces
        self.training = training
        """The training's settings."""
        self.info = info
        """The checkpoint's metadata: steps, seconds, evaluation, versions."""
        self.checkpoint = checkpoint
        """The checkpoint's name."""
        self._greedy = not sampled
        self._rng = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        """Call it when an episode starts, to reset a recurrent policy. Others do not need it."""
        size = self.policy.state_size
        self._state = np.zeros((1, size), np.float32) if size else None
        self._first = np.ones(1, np.uint8)

    def __call__(self, observation: Any, mask: Any = None) -> Any:
        """Choose an action: an integer, or an array within the environment's bounds. `mask` is 1 where an action is allowed."""
        masks = None if mask is None else np.asarray(mask, np.uint8)[None]
        actions = self.policy.act(
            self._batch(observation),
            self._rng,
            greedy=self._greedy,
            masks=masks,
            values=False,
            state=self._state,
            first=self._first,
        )
        self._state, self._first = actions.state, np.zeros(1, np.uint8)
        if isinstance(self.spaces.action, Discrete):
            return int(actions.action[0])
        return np.clip(actions.action[0], self.spaces.action.low, self.spaces.action.high).astype(np.float32)

    def _batch(self, observation: Any) -> dict[str, NDArray[Any]]:
        parts = dict(_parts(observation))
        if list(self.spaces.observations) == ["observation"] and list(parts) == [""]:
            parts = {"observation": parts[""]}
        return {
            key: _array(key, array, parts.get(key))[None] for key, array in self.spaces.observations.items()
        }


def _parts(observation: Any, prefix: str = "") -> Any:
    """Every array with its name. Names of nested ones are joined by dots."""
    if isinstance(observation, Mapping):
        inner = observation.items()
    elif isinstance(observation, tuple):
        inner = dict(enumerate(observation)).items()
    else:
        yield prefix, observation
        return
    for key, value in inner:
        yield from _parts(value, f"{prefix}.{key}" if prefix else str(key))


def _array(key: str, wanted: Array, value: Any) -> NDArray[Any]:
    if value is None:
        raise UserError(
            f"the observation has no {key!r}",
            fix="pass observations as the environment returned them in training",
        )
    given = np.asarray(value)
    if given.ndim == 0 and len(wanted.shape) == 1 and wanted.high == 1.0:
        one_hot = np.zeros(wanted.shape, wanted.dtype)  # one-hot
        one_hot[int(given)] = 1
        return one_hot
    if given.shape != wanted.shape:
        raise UserError(
            f"the observation {key!r} has shape {given.shape}, but the policy expects {wanted.shape}",
            fix="pass one observation, as the environment returned it in training",
        )
    return given.astype(wanted.dtype, copy=False)


def load_policy(
    results: str, *, checkpoint: str = "best", sampled: bool = False, seed: int | None = None
) -> LoadedPolicy:
    """Load the policy of a training. `results` is the run's folder or URL.

    `checkpoint` is `best` (by evaluation; the newest if there were none), `newest`, or a name. By default the policy is
    greedy; with `sampled` it samples actions, as actors do in training. Only images and LSTMs need PyTorch.
    """
    try:
        arrays, stored = find_policy(open_store(str(results)), checkpoint)
    except BadSet as error:
        raise UserError(error.message, fix="try another one: checkpoint='newest', or a name") from None
    try:
        training = msgspec.convert(dict(stored.info["training"]), Training)
    except (KeyError, msgspec.ValidationError) as error:
        raise UserError(
            f"the checkpoint {stored.name} cannot be read by this version: {error}",
            fix="load it with the version that wrote it",
        ) from None
    spaces = _spaces(stored.info, training)
    policy = policy_for(spaces, algorithm(training.algorithm).settings(training).network)
    policy.load(arrays)
    return LoadedPolicy(policy, spaces, training, stored.info, stored.name, sampled=sampled, seed=seed)


def _spaces(info: Mapping[str, Any], training: Training) -> Spaces:
    """From the checkpoint, so that the environment need not be installed; otherwise from the environment."""
    if "spaces" in info:
        return msgspec.convert(info["spaces"], Spaces)
    from callsheet.rl.envs import spaces_of

    return spaces_of(training.env, options=training.options)
