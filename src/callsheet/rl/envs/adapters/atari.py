"""Atari games with the standard preprocessing: many at once by ale-py's vector environment, or a single one for rendering.

Grayscale frames of 84 x 84, the last four stacked; each action for four frames, the last two max-pooled (sprites flicker);
up to 30 no-ops at the start; no end at the loss of a life; unclipped rewards; the game's minimal action set. Ids
`ALE/NAME-v5` have sticky actions (0.25), `NAMENoFrameskip-v4` do not. Options change all of it.
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
from callsheet.rl.envs.base import EnvRequest, available_cores
from callsheet.rl.envs.lookup import check_options

_RESERVED: Final = ("game", "num_envs", "batch_size", "autoreset_mode")
_DEFAULTS: Final = {
    name: parameter.default
    for name, parameter in inspect.signature(AtariVectorEnv).parameters.items()
    if name not in _RESERVED
} | {"reward_clipping": False}
_VECTOR_ONLY: Final = ("continuous", "episodic_life", "life_loss_info")
HEIGHT, WIDTH = 210, 160


def _settings(spec: Mapping[str, Any], request: EnvRequest) -> dict[str, Any]:
    """Our defaults, the id's settings and the user's options."""
    check_options(request.env, request.options, _DEFAULTS)
    # Legacy ids skip one frame or a random number of them; we always skip four.
    of_id = {key: value for key, value in spec.items() if key in _DEFAULTS and key != "frameskip"}
    return _DEFAULTS | of_id | request.options


def vector(spec: Mapping[str, Any], request: EnvRequest) -> AtariVectorEnv:
    """Many games at once, with as many threads as this process may use."""
    settings = _settings(spec, request)
    settings["num_threads"] = settings["num_threads"] or min(request.count, available_cores())
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return AtariVectorEnv(spec["game"], request.count, **settings)


def single(spec: Mapping[str, Any], request: EnvRequest) -> AtariGame:
    """One game that can be rendered, and is otherwise the same."""
    settings = _settings(spec, request)
    if chosen := [each for each in _VECTOR_ONLY if settings[each]] + ["grayscale"] * (
        not settings["grayscale"]
    ):
        raise UserError(
            f"{request.env} cannot be rendered with the option {chosen[0]!r}",
            fix="remove the option or the render_mode",
        )
    return AtariGame(spec["game"], settings)


class AtariGame(gym.Env[NDArray[np.uint8], Any]):
    """A single game with the vector environment's preprocessing, for recorded evaluations."""

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
        self._rows = _area_weights(HEIGHT, shape[1])
        self._columns = _area_weights(WIDTH, shape[2])
        self._stack: deque[NDArray[np.uint8]] = deque(maxlen=shape[0])

    def _load(self, seed: int) -> None:
        """Load the game, which is when ALE applies its settings."""
        self._ale.setInt("random_seed", seed)
        self._ale.setFloat("repeat_action_probability", self._settings["repeat_action_probability"])
        self._ale.setInt("max_num_frames_per_episode", self._settings["max_num_frames_per_episode"])
        path: Any = ale_py.roms.get_rom_path(self._game)
        self._ale.loadROM(path)
        full = self._settings["full_action_space"]
        self._actions = self._ale.getLegalActionSet() if full else self._ale.getMinimalActionSet()

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
        frame = self._resize(self._ale.getScreenGrayscale())
        for _ in range(self._settings["stack_num"] - 1):
            self._stack.append(np.zeros_like(frame))
        self._stack.append(frame)
        return np.stack(self._stack), {}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        reward, skip = 0.0, self._settings["frameskip"]
        merged = np.zeros(0, np.uint8)
        for number in range(skip):
            reward += self._ale.act(self._actions[action])
            over = self._ale.game_over(with_truncation=True)
            if number >= skip - 2 or over:
                frame = self._ale.getScreenGrayscale()
                both = merged.size and self._settings["maxpool"]
                merged = np.maximum(merged, frame) if both else frame
            if over:
                break
        self._stack.append(self._resize(merged))
        if self._settings["reward_clipping"]:
            reward = float(np.sign(reward))
        cut = self._ale.game_truncated()
        return np.stack(self._stack), reward, self._ale.game_over(with_truncation=False), cut, {}

    def _resize(self, frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
        rows, share = self._rows
        flat = (frame[rows] * share[:, :, None]).sum(axis=1)
        columns, share = self._columns
        small: NDArray[np.uint8] = np.rint((flat[:, columns] * share).sum(axis=2)).astype(np.uint8)
        return small

    def render(self) -> Any:
        return self._ale.getScreenRGB()


def _area_weights(size: int, wanted: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Area interpolation: which of `size` pixels go into each of `wanted`, and with what weight. (A matrix product would be
    shorter, but its threads wait for each other on a busy machine: up to 40 ms.)"""
    edges = np.arange(wanted + 1) * (size / wanted)
    width = int(np.ceil(size / wanted)) + 1
    pixels = np.floor(edges[:-1, None]).astype(np.int64) + np.arange(width)
    covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    share = np.clip(covered, 0, None) * (wanted / size)
    return np.minimum(pixels, size - 1), share.astype(np.float32)
