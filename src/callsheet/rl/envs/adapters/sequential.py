"""Single environments, stepped in a loop in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.envs.adapters.spaces import MASK, SpaceAdapter
from callsheet.rl.envs.base import RGB, EnvRequest, Observations, Step, seed_of
from callsheet.rl.spaces import Discrete, Family

Env = gym.Env[Any, Any]


class SequentialEnvironments:
    """A list of Gymnasium environments as one."""

    restarts = 0

    def __init__(self, envs: Sequence[Env], request: EnvRequest, family: Family) -> None:
        self.count = len(envs)
        self.masks: NDArray[np.uint8] | None = None
        self._envs = list(envs)
        self._first = request.first
        self._adapter = SpaceAdapter(envs[0].observation_space, envs[0].action_space, request.env)
        self._over = [False] * self.count
        # Whether `info` has masks is known only after a reset, which also serves as the first one.
        self._initial: Observations | None = self._reset(request.seed)
        self.spaces = self._adapter.spaces(self.masks is not None, family)

    def reset(self, seed: int | None = None) -> Observations:
        initial, self._initial = self._initial, None
        return initial if initial is not None and seed is None else self._reset(seed)

    def _reset(self, seed: int | None) -> Observations:
        out = {part.name: part.empty(self.count) for part in self._adapter.parts}
        masks = None
        for index, env in enumerate(self._envs):
            observation, info = env.reset(seed=None if seed is None else seed_of(seed, self._first + index))
            mask = self._mask(observation, info)
            if mask is not None and masks is None:
                masks = np.ones((self.count, len(mask)), np.uint8)
            self._write(out, masks, index, observation, info)
        self._over = [False] * self.count
        self.masks = masks
        return out

    def step(self, actions: NDArray[Any]) -> Step:
        self._initial = None
        count, over = self.count, self._over
        taken = self._adapter.each_action(actions)
        out = {part.name: part.empty(count) for part in self._adapter.parts}
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
            self._write(out, masks, index, observation, info)
        self.masks = masks
        return Step(out, rewards, terminated, truncated, ~first, first, np.zeros(count, np.bool_), masks)

    def _write(
        self,
        out: Observations,
        masks: NDArray[np.uint8] | None,
        index: int,
        observation: Any,
        info: Mapping[str, Any],
    ) -> None:
        for part in self._adapter.parts:
            part.write(out[part.name], index, part.select(observation) if part.path else observation)
        if masks is not None:
            mask = self._mask(observation, info)
            if mask is not None:
                masks[index] = mask

    def _mask(self, observation: Any, info: Mapping[str, Any]) -> Any:
        if self._adapter.mask is not None:
            return self._adapter.mask.select(observation)
        return info.get(MASK) if isinstance(self._adapter.action, Discrete) else None

    def frame(self) -> NDArray[np.uint8]:
        renders = self._envs[0].render_mode == RGB
        frame = self._envs[0].render() if renders else None
        if not isinstance(frame, np.ndarray):
            raise UserError("this environment cannot be rendered", fix='make it with render_mode="rgb_array"')
        return np.asarray(frame, np.uint8)

    def close(self) -> None:
        for env in self._envs:
            env.close()
