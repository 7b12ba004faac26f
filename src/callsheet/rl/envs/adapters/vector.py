"""Vector environments of Gymnasium, ale-py and EnvPool, with as little overhead as possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.envs.adapters.spaces import MASK, SpaceAdapter
from callsheet.rl.envs.base import EnvRequest, Observations, Step, seed_of
from callsheet.rl.spaces import Discrete, Family


class VectorEnv(Protocol):
    """The part of Gymnasium's VectorEnv that we use."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]: ...
    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]: ...
    def close(self) -> None: ...


class VectorEnvironments:
    """A vector environment, which must start episodes in the step after their end (`AutoresetMode.NEXT_STEP`)."""

    restarts = 0

    def __init__(self, env: VectorEnv, adapter: SpaceAdapter, request: EnvRequest, family: Family) -> None:
        self.count = request.count
        self.masks: NDArray[np.uint8] | None = None
        self._name = request.env
        self._env = env
        self._first = request.first
        self._adapter = adapter
        self._over = np.zeros(self.count, np.bool_)
        self._unbroken = np.zeros(self.count, np.bool_)
        self._unbroken.flags.writeable = False
        self._initial: Observations | None = self._reset(request.seed)
        self.spaces = adapter.spaces(self.masks is not None, family)

    def reset(self, seed: int | None = None) -> Observations:
        initial, self._initial = self._initial, None
        return initial if initial is not None and seed is None else self._reset(seed)

    def _reset(self, seed: int | None) -> Observations:
        observation, info = self._env.reset(seed=None if seed is None else seed_of(seed, self._first))
        self._over = np.zeros(self.count, np.bool_)
        self.masks = self._mask(observation, info)
        return self._adapter.batch(observation)

    def step(self, actions: NDArray[Any]) -> Step:
        self._initial = None
        observation, rewards, ended, cut, info = self._env.step(self._adapter.actions(actions))
        first = self._over
        terminated = np.asarray(ended, np.bool_)
        truncated = np.asarray(cut, np.bool_) & ~terminated
        self._over = terminated | truncated
        self.masks = self._mask(observation, info)
        return Step(
            self._adapter.batch(observation),
            np.asarray(rewards, np.float32),
            terminated,
            truncated,
            ~first,
            first,
            self._unbroken,
            self.masks,
        )

    def _mask(self, observation: Any, info: Mapping[str, Any]) -> NDArray[np.uint8] | None:
        if self._adapter.mask is not None:
            return np.asarray(self._adapter.mask.select(observation), np.uint8)
        if MASK not in info or not isinstance(self._adapter.action, Discrete):
            return None
        mask = np.array(info[MASK], np.uint8)
        # `_action_mask` tells which environments have a mask.
        if (present := info.get(f"_{MASK}")) is not None:
            mask[~np.asarray(present, np.bool_)] = 1
        return mask

    def frame(self) -> NDArray[np.uint8]:
        raise UserError(
            f"{self._name} cannot be rendered, because it is a vector environment",
            fix='make a single one with render_mode="rgb_array"',
        )

    def close(self) -> None:
        self._env.close()


def from_gymnasium(
    env: gym.vector.VectorEnv[Any, Any, Any], request: EnvRequest, family: Family
) -> VectorEnvironments:
    """Adapt a Gymnasium vector environment, if it has the right size and autoreset mode."""
    name = request.env
    if env.num_envs != request.count:
        raise UserError(
            f"{name} made a vector of {env.num_envs} environments instead of {request.count}",
            fix="let the factory accept num_envs and make that many",
        )
    mode = (env.metadata or {}).get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        raise UserError(
            f"the autoreset mode of {name} is {getattr(mode, 'name', mode)}; an episode must start in the step after the "
            "previous one ended",
            fix='set metadata["autoreset_mode"] to gymnasium.vector.AutoresetMode.NEXT_STEP, and implement it',
        )
    adapter = SpaceAdapter(env.single_observation_space, env.single_action_space, name)
    return VectorEnvironments(env, adapter, request, family)
