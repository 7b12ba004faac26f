"""Small environments in which chance alone gets little and every kind of policy can learn to get all.

A target is shown, and doing as it says is rewarded with 1 in each of eight steps.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

TARGETS, STEPS = 4, 8
BYTES = gym.spaces.Box(0, 255, (1, 36, 36), np.uint8)
VECTOR = gym.spaces.Box(0, 1, (TARGETS,), np.float32)


class Match(gym.Env[Any, Any]):
    """What `shows` is: vector, choice, image, small (an image for the ResNet), dict, once (in the first step only) or
    masked (three of the actions are wrong, and one of those is forbidden)."""

    def __init__(self, shows: str = "vector", continuous: bool = False) -> None:
        self._shows, self._continuous = shows, continuous
        self.observation_space = {
            "choice": gym.spaces.Discrete(TARGETS),
            "image": BYTES,
            "small": gym.spaces.Box(0, 255, (8, 8, 3), np.uint8),
            "dict": gym.spaces.Dict({"picture": BYTES, "side": gym.spaces.Box(0, 1, (2,), np.float32)}),
        }.get(shows, VECTOR)
        self.action_space = (
            gym.spaces.Box(-2, 2, (1,), np.float32) if continuous else gym.spaces.Discrete(TARGETS)
        )
        self._target = self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        self._draw()
        return self._look(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._continuous:
            wanted = self._target - (TARGETS - 1) / 2
            reward = float(np.exp(-((float(action[0]) - wanted) ** 2)))
        else:
            reward = float(action == self._target)
        self._step += 1
        if self._shows != "once":
            self._draw()
        return self._look(), reward, False, self._step == STEPS, self._info()

    def _draw(self) -> None:
        self._target = int(self.np_random.integers(TARGETS))

    def _info(self) -> dict[str, Any]:
        if self._shows != "masked":
            return {}
        allowed = np.ones(TARGETS, np.int8)
        allowed[(self._target + 1) % TARGETS] = 0
        return {"action_mask": allowed}

    def _look(self) -> Any:
        shown = np.eye(TARGETS, dtype=np.float32)[self._target]
        match self._shows:
            case "choice":
                return self._target
            case "image":
                return self._picture(36, self._target)[None]
            case "small":
                return np.repeat(self._picture(8, self._target)[..., None], 3, axis=2)
            case "dict":
                side = np.eye(2, dtype=np.float32)[self._target // 2]
                return {"picture": self._picture(36, self._target % 2)[None], "side": side}
            case "once" if self._step:
                return np.zeros_like(shown)
        return shown

    def _picture(self, size: int, place: int) -> Any:
        picture = np.zeros((size, size), np.uint8)
        half = size // 2
        row, column = divmod(place, 2)
        picture[row * half : (row + 1) * half, column * half : (column + 1) * half] = 255
        return picture


def match(shows: str = "vector", continuous: bool = False) -> Match:
    """For `learnable:match`."""
    return Match(shows, continuous)
