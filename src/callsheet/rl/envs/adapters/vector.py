"""Environments that are a vector already: Gymnasium's own vectors, ale-py's, EnvPool's. Next to nothing is added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.envs.adapters.spaces import MASK, Translation
from callsheet.rl.envs.base import Observations, Step, seed_of
from callsheet.rl.spaces import Discrete, Family


class Vector(Protocol):
    """The part of Gymnasium's VectorEnv that is used."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]: ...
    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]: ...
    def close(self) -> None: ...


class Native:
    """A vector of environments as one of ours. It must begin episodes in the step after their end."""

    restarts = 0

    def __init__(
        self,
        env: Vector,
        words: Translation,
        *,
        count: int,
        name: str,
        seed: int,
        family: Family,
        first: int = 0,
    ) -> None:
        self.count = count
        self.masks: NDArray[np.uint8] | None = None
        self._name = name
        self._env = env
        self._first = first
        self._words = words
        self._over = np.zeros(count, np.bool_)
        self._unbroken = np.zeros(count, np.bool_)
        self._unbroken.flags.writeable = False
        self._begun: Observations | None = self._reset(seed)
        self.spaces = words.spaces(self.masks is not None, family)

    def reset(self, seed: int | None = None) -> Observations:
        begun, self._begun = self._begun, None
        return begun if begun is not None and seed is None else self._reset(seed)

    def _reset(self, seed: int | None) -> Observations:
        observation, info = self._env.reset(seed=None if seed is None else seed_of(seed, self._first))
        self._over = np.zeros(self.count, np.bool_)
        self.masks = self._mask(observation, info)
        return self._words.batch(observation)

    def step(self, actions: NDArray[Any]) -> Step:
        self._begun = None
        observation, rewards, ended, cut, info = self._env.step(self._words.actions(actions))
        first = self._over
        terminated = np.asarray(ended, np.bool_)
        truncated = np.asarray(cut, np.bool_) & ~terminated
        self._over = terminated | truncated
        self.masks = self._mask(observation, info)
        return Step(
            self._words.batch(observation),
            np.asarray(rewards, np.float32),
            terminated,
            truncated,
            ~first,
            first,
            self._unbroken,
            self.masks,
        )

    def _mask(self, observation: Any, info: Mapping[str, Any]) -> NDArray[np.uint8] | None:
        if self._words.mask is not None:
            return np.asarray(self._words.mask.find(observation), np.uint8)
        if MASK not in info or not isinstance(self._words.action, Discrete):
            return None
        mask = np.array(info[MASK], np.uint8)
        # Vectors say with an underscore for which environments there is such an information.
        if (told := info.get(f"_{MASK}")) is not None:
            mask[~np.asarray(told, np.bool_)] = 1
        return mask

    def frame(self) -> NDArray[np.uint8]:
        raise UserError(
            f"there are no pictures of {self._name}: it is a vector of environments",
            fix='make a single one with render_mode="rgb_array"',
        )

    def close(self) -> None:
        self._env.close()


def from_gymnasium(
    env: gym.vector.VectorEnv[Any, Any, Any],
    *,
    count: int,
    name: str,
    seed: int,
    family: Family,
    first: int = 0,
) -> Native:
    """One of Gymnasium's vectors, if it is as large and behaves as it must."""
    if env.num_envs != count:
        raise UserError(
            f"{name} made a vector of {env.num_envs} environments where {count} were asked for",
            fix="let the factory take num_envs and make so many",
        )
    mode = (env.metadata or {}).get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        raise UserError(
            f"{name} is a vector whose autoreset mode is {getattr(mode, 'name', mode)}; episodes must begin in the step "
            "after the end of the one before",
            fix='set metadata["autoreset_mode"] to gymnasium.vector.AutoresetMode.NEXT_STEP, and behave so',
        )
    words = Translation(env.single_observation_space, env.single_action_space, name)
    return Native(env, words, count=count, name=name, seed=seed, family=family, first=first)
