"""Simulators that behave badly, each in a way of its own, and small environments whose every number is known."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

BOX = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)


class Counting(gym.Env[Any, Any]):
    """Gives `[episode, step]` and the action as a reward; ends after `length` steps, in the way that is told."""

    def __init__(self, length: int = 3, ends: str = "terminated", render_mode: str | None = None) -> None:
        self.observation_space = BOX
        self.action_space = gym.spaces.Discrete(4)
        self.render_mode = render_mode
        self._length, self._ends = length, ends
        self._episode, self._step = -1, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode, self._step = self._episode + 1, 0
        return self._look(), {}

    def _look(self) -> Any:
        return np.array([self._episode, self._step], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        over = self._step >= self._length
        ended, cut = over and self._ends != "truncated", over and self._ends != "terminated"
        return self._look(), float(action), ended, cut, {}

    def render(self) -> Any:
        return np.full((8, 6, 3), self._step, np.uint8)


class Chance(Counting):
    """Its observations are drawn by chance."""

    def _look(self) -> Any:
        return self.np_random.normal(size=2).astype(np.float32)


class Failing(Counting):
    """Does something bad when the action is 3, or (`once` names a file) only the first time in all its lives."""

    def __init__(self, how: str, once: str = "", where: str = "step") -> None:
        super().__init__(length=100)
        self._how, self._once, self._where = how, once, where
        if where == "start":
            self._fail()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if self._where == "reset":
            self._fail()
        return super().reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action == 3 and self._where == "step":
            self._fail()
        return super().step(action)

    def _fail(self) -> None:
        if self._once:
            if Path(self._once).exists():
                return
            Path(self._once).touch()
        match self._how:
            case "exit":
                os._exit(1)
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "raise":
                raise RuntimeError("the simulator lost its wheels")
            case "hang":
                threading.Event().wait()
            case "hang deaf":
                signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
                threading.Event().wait()


class WithHelper(Failing):
    """Starts a helper process, as simulators with a binary of their own do, and writes its number into a file."""

    def __init__(self, helper: str, how: str = "hang") -> None:
        super().__init__(how)
        self.helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        Path(helper).write_text(str(self.helper.pid))


class Masked(Counting):
    """Allows action `step modulo 4` alone, and says so in its information."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(seed=seed)
        return observation, {"action_mask": self._mask()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, ended, cut, _ = super().step(action)
        return observation, reward, ended, cut, {"action_mask": self._mask()}

    def _mask(self) -> Any:
        mask = np.zeros(4, np.int8)
        mask[self._step % 4] = 1
        return mask


class MaskedObservation(Masked):
    """The same, in the way of board games: the mask is a part of the observation, beside other parts."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Dict(
            {
                "action_mask": gym.spaces.MultiBinary(4),
                "board": gym.spaces.Dict({"cells": gym.spaces.Box(0, 255, (2, 2), np.uint8)}),
                "turn": gym.spaces.Discrete(3, start=1),
            }
        )

    def _look(self) -> Any:
        cells = np.full((2, 2), self._step, np.uint8)
        return {"action_mask": self._mask(), "board": {"cells": cells}, "turn": 1 + self._step % 3}


class Turning(Counting):
    """Takes a 2 x 2 box of numbers with limits of their own, and rewards the first of them."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Box(
            np.array([[-1, -2], [-3, -4]]), np.array([[1, 2], [3, 4]]), dtype=np.float64
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        return super().step(action[1, 1])


def odd(what: str) -> Any:
    """Environments that cannot be used."""
    env = Counting()
    match what:
        case "text":
            env.observation_space = gym.spaces.Dict({"note": gym.spaces.Text(4)})
        case "many":
            env.observation_space = gym.spaces.Discrete(10**6)
        case "empty":
            env.observation_space = gym.spaces.Dict({})
        case "actions":
            env.action_space = gym.spaces.MultiDiscrete([2, 3])
        case "boundless":
            env.action_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        case "nothing":
            return object()
    return env


def vector(num_envs: int, mode: str = "NextStep", spare: int = 0) -> Any:
    """A vector of one's own."""
    return gym.vector.SyncVectorEnv([Masked] * (num_envs + spare), autoreset_mode=AutoresetMode(mode))


gym.register("Counted-v3", entry_point=f"{__name__}:Counting", kwargs={"length": 2})
