"""Atari games to the standard protocol: all of them at once by ale-py's own vector, or a single one with pictures.

Gray pictures of 84 x 84, the last four of them stacked; each action for four frames, the last two of them merged (sprites
flicker); up to 30 idle frames at the start; no end at the loss of a life; true rewards, unclipped; the game's own small set of
actions. Ids `ALE/NAME-v5` repeat an action by chance (0.25), `NAMENoFrameskip-v4` do not. Options change all of it.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import ale_py
import gymnasium as gym
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.rl.envs.base import available_cores
from callsheet.rl.envs.lookup import check_options

_OURS: Final = ("game", "num_envs", "batch_size", "autoreset_mode")
_DEFAULTS: Final = {
    name: parameter.default
    for name, parameter in inspect.signature(AtariVectorEnv).parameters.items()
    if name not in _OURS
} | {"reward_clipping": False}
_VECTOR_ONLY: Final = ("continuous", "episodic_life", "life_loss_info")
HEIGHT, WIDTH = 210, 160


def _settings(spec: Mapping[str, Any], name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All settings: our defaults, what the id stands for, and what the user wants."""
    check_options(name, options, _DEFAULTS)
    # Legacy ids skip one frame or a number by chance: the protocol's four count, as everywhere.
    of_id = {key: value for key, value in spec.items() if key in _DEFAULTS and key != "frameskip"}
    return _DEFAULTS | of_id | dict(options)


def vector(spec: Mapping[str, Any], count: int, name: str, options: Mapping[str, Any]) -> AtariVectorEnv:
    """Many games in one; its threads follow the share of the machine that this process was given."""
    settings = _settings(spec, name, options)
    settings["num_threads"] = settings["num_threads"] or min(count, available_cores())
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return AtariVectorEnv(spec["game"], count, **settings)


def single(spec: Mapping[str, Any], name: str, options: Mapping[str, Any]) -> Game:
    """One game that can be looked at, and otherwise is the same."""
    settings = _settings(spec, name, options)
    if chosen := [each for each in _VECTOR_ONLY if settings[each]] + ["grayscale"] * (
        not settings["grayscale"]
    ):
        raise UserError(
            f"{name} cannot be shown with the option {chosen[0]!r}", fix="leave it out, or the render_mode"
        )
    return Game(spec["game"], settings)


class Game(gym.Env[NDArray[np.uint8], Any]):
    """A single game with the vector's preprocessing: for evaluations that are filmed."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012
    render_mode = "rgb_array"

    def __init__(self, game: str, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._game = game
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale = ale_py.ALEInterface()
        self._actions: list[Any] = []
        self._load(0)
        shape = (settings["stack_num"], settings["img_height"], settings["img_width"])
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gym.spaces.Discrete(len(self._actions))
        self._rows = _shares(HEIGHT, shape[1])
        self._columns = _shares(WIDTH, shape[2])
        self._stack: deque[NDArray[np.uint8]] = deque(maxlen=shape[0])

    def _load(self, seed: int) -> None:
        """ALE takes its settings when the game is loaded."""
        self._ale.setInt("random_seed", seed)
        self._ale.setFloat("repeat_action_probability", self._settings["repeat_action_probability"])
        self._ale.setInt("max_num_frames_per_episode", self._settings["max_num_frames_per_episode"])
        path: Any = ale_py.roms.get_rom_path(self._game)
        self._ale.loadROM(path)
        everything = self._settings["full_action_space"]
        self._actions = self._ale.getLegalActionSet() if everything else self._ale.getMinimalActionSet()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._load(seed)
        self._ale.reset_game()
        idle = int(self.np_random.integers(0, self._settings["noop_max"] + 1))
        for _ in range(idle):
            self._ale.act(ale_py.Action.NOOP)
            if self._ale.game_over():
                self._ale.reset_game()
        if self._settings["use_fire_reset"] and ale_py.Action.FIRE in self._actions[1:2]:
            self._ale.act(ale_py.Action.FIRE)
        picture = self._small(self._ale.getScreenGrayscale())
        for _ in range(self._settings["stack_num"] - 1):
            self._stack.append(np.zeros_like(picture))
        self._stack.append(picture)
        return np.stack(self._stack), {}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        reward, skip = 0.0, self._settings["frameskip"]
        merged = np.zeros(0, np.uint8)
        for frame in range(skip):
            reward += self._ale.act(self._actions[action])
            over = self._ale.game_over(with_truncation=True)
            if frame >= skip - 2 or over:
                picture = self._ale.getScreenGrayscale()
                both = merged.size and self._settings["maxpool"]
                merged = np.maximum(merged, picture) if both else picture
            if over:
                break
        self._stack.append(self._small(merged))
        if self._settings["reward_clipping"]:
            reward = float(np.sign(reward))
        cut = self._ale.game_truncated()
        return np.stack(self._stack), reward, self._ale.game_over(with_truncation=False), cut, {}

    def _small(self, picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
        rows, share = self._rows
        flat = (picture[rows] * share[:, :, None]).sum(axis=1)
        columns, share = self._columns
        small: NDArray[np.uint8] = np.rint((flat[:, columns] * share).sum(axis=2)).astype(np.uint8)
        return small

    def render(self) -> Any:
        return self._ale.getScreenRGB()


def _shares(size: int, wanted: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Which of `size` pixels go into each of `wanted`, and with which share: the mean over the area that it covers. (A
    product of matrices would be shorter, and its threads wait for each other on a busy machine: 40 ms were seen.)"""
    edges = np.arange(wanted + 1) * (size / wanted)
    width = int(np.ceil(size / wanted)) + 1
    pixels = np.floor(edges[:-1, None]).astype(np.int64) + np.arange(width)
    covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    share = np.clip(covered, 0, None) * (wanted / size)
    return np.minimum(pixels, size - 1), share.astype(np.float32)
