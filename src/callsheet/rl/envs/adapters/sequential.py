"""Environments that come one by one, stepped in a loop in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.envs.adapters.spaces import MASK, Translation
from callsheet.rl.envs.base import Observations, Step, seed_of
from callsheet.rl.spaces import Discrete, Family

Env = gym.Env[Any, Any]


class Plain:
    """A list of Gymnasium's environments as one."""

    restarts = 0

    def __init__(self, envs: Sequence[Env], *, name: str, seed: int, family: Family, first: int = 0) -> None:
        """`first` is the place of the first one among all that there are: seeds go by places."""
        self.count = len(envs)
        self.masks: NDArray[np.uint8] | None = None
        self._envs = list(envs)
        self._first = first
        self._words = Translation(envs[0].observation_space, envs[0].action_space, name)
        self._over = [False] * self.count
        # Whether masks come with the information is known only after a reset; it serves as the first one, too.
        self._begun: Observations | None = self._reset(seed)
        self.spaces = self._words.spaces(self.masks is not None, family)

    def reset(self, seed: int | None = None) -> Observations:
        begun, self._begun = self._begun, None
        return begun if begun is not None and seed is None else self._reset(seed)

    def _reset(self, seed: int | None) -> Observations:
        out = {part.name: part.empty(self.count) for part in self._words.parts}
        masks = None
        for index, env in enumerate(self._envs):
            observation, info = env.reset(seed=None if seed is None else seed_of(seed, self._first + index))
            mask = self._mask(observation, info)
            if mask is not None and masks is None:
                masks = np.ones((self.count, len(mask)), np.uint8)
            self._put(out, masks, index, observation, info)
        self._over = [False] * self.count
        self.masks = masks
        return out

    def step(self, actions: NDArray[Any]) -> Step:
        self._begun = None
        count, over = self.count, self._over
        taken = self._words.each_action(actions)
        out = {part.name: part.empty(count) for part in self._words.parts}
        masks = None if self.masks is None else np.ones_like(self.masks)
        rewards = np.zeros(count, np.float32)
        terminated, truncated = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        first = np.array(over)
        for index, env in enumerate(self._envs):
            if over[index]:
                observation, info = env.reset()
                over[index] = False
            else:
                observation, reward, ended, cut, info = env.step(taken[index])
                rewards[index] = reward
                if ended:
                    terminated[index] = over[index] = True
                elif cut:
                    truncated[index] = over[index] = True
            self._put(out, masks, index, observation, info)
        self.masks = masks
        return Step(out, rewards, terminated, truncated, ~first, first, np.zeros(count, np.bool_), masks)

    def _put(
        self,
        out: Observations,
        masks: NDArray[np.uint8] | None,
        index: int,
        observation: Any,
        info: Mapping[str, Any],
    ) -> None:
        for part in self._words.parts:
            part.put(out[part.name], index, part.find(observation) if part.path else observation)
        if masks is not None:
            mask = self._mask(observation, info)
            if mask is not None:
                masks[index] = mask

    def _mask(self, observation: Any, info: Mapping[str, Any]) -> Any:
        if self._words.mask is not None:
            return self._words.mask.find(observation)
        return info.get(MASK) if isinstance(self._words.action, Discrete) else None

    def frame(self) -> NDArray[np.uint8]:
        shown = self._envs[0].render_mode == "rgb_array"
        picture = self._envs[0].render() if shown else None
        if not isinstance(picture, np.ndarray):
            raise UserError(
                "there are no pictures of this environment", fix='make it with render_mode="rgb_array"'
            )
        return np.asarray(picture, np.uint8)

    def close(self) -> None:
        for env in self._envs:
            env.close()
