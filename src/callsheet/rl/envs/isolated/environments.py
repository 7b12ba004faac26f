"""Environments in processes of their own, which are killed and started again when they die, fail or hang."""

from __future__ import annotations

import logging
import os
import sys
import time
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from callsheet.errors import RetryError, UserError
from callsheet.rl.envs.base import Observations, Step, available_cores, seed_of
from callsheet.rl.envs.isolated import worker as there
from callsheet.rl.envs.isolated.process import FAREWELL, Child, Lost
from callsheet.rl.envs.isolated.shared_memory import Shared, anonymous

log = logging.getLogger("callsheet.rl")
PATIENCE = 5
"""How often a process may be started again without a single step in between."""


class Isolated:
    """The environments of several processes as one."""

    def __init__(
        self,
        wish: there.Wish,
        *,
        step_timeout: float,
        start_timeout: float,
        processes: int | None = None,
    ) -> None:
        self.count = wish.total
        self.restarts = 0
        self._wish = wish
        self._step_timeout, self._start_timeout = step_timeout, start_timeout
        self._memory = anonymous()
        number = max(1, min(self.count, processes or available_cores()))
        edges = [self.count * index // number for index in range(number + 1)]
        self._parts = [slice(low, high) for low, high in pairwise(edges)]
        self._children: list[Child] = []
        self._lives = [0] * number
        self._barren = [0] * number
        try:
            for index in range(number):
                self._children.append(self._spawn(index))
            limit = time.monotonic() + start_timeout
            told = [child.hello(limit) for child in self._children]
        except Lost as lost:
            self._abandon()
            raise UserError(
                f"{wish.env} could not be started: {lost}",
                fix="see what it printed above; isolate=False shows the whole error",
            ) from None
        except BaseException:
            self._abandon()
            raise
        self.spaces = told[0]
        self._shared = Shared(self._memory, self.spaces, self.count)

    def _spawn(self, index: int) -> Child:
        rows, life = self._parts[index], self._lives[index]
        seed = self._wish.seed if life == 0 else seed_of(self._wish.seed, rows.start, life)
        wish = msgspec.structs.replace(
            self._wish, first=rows.start, count=rows.stop - rows.start, seed=seed, path=sys.path
        )
        return Child(wish, self._memory)

    @property
    def masks(self) -> NDArray[np.uint8] | None:
        return None if self._shared.masks is None else self._shared.masks.copy()

    def reset(self, seed: int | None = None) -> Observations:
        if seed is not None:
            self._wish = msgspec.structs.replace(self._wish, seed=seed)
        message = there.RESET + msgspec.json.encode(there.Reset(seed))
        self._ask(message, self._start_timeout)
        return self._observations()

    def step(self, actions: NDArray[Any]) -> Step:
        self._shared.arrays["actions"][...] = actions
        broken = self._ask(there.STEP, self._step_timeout)
        arrays = self._shared.arrays
        if broken.any():
            for name in ("rewards", "terminated", "truncated", "valid"):
                arrays[name][broken] = 0
            arrays["first"][broken] = True
        return Step(
            self._observations(),
            arrays["rewards"].copy(),
            arrays["terminated"].copy(),
            arrays["truncated"].copy(),
            arrays["valid"].copy(),
            arrays["first"].copy(),
            broken,
            self.masks,
        )

    def _observations(self) -> Observations:
        return {name: array.copy() for name, array in self._shared.observations.items()}

    def _ask(self, message: bytes, timeout: float) -> NDArray[np.bool_]:
        """Have all processes do something at once; the environments that were lost over it and begin anew."""
        broken = np.zeros(self.count, np.bool_)
        for child in self._children:
            child.send(message)
        limit = time.monotonic() + timeout
        for index, child in enumerate(self._children):
            try:
                child.done(limit)
                if message == there.STEP:
                    self._barren[index] = 0
            except Lost as lost:
                broken[self._parts[index]] = True
                self._revive(index, lost)
        return broken

    def _revive(self, index: int, lost: Lost) -> None:
        """Start a process again until its environments have begun an episode."""
        reset = there.RESET + msgspec.json.encode(there.Reset())
        while True:
            self._children[index].kill()
            if self._barren[index] == PATIENCE:
                raise RetryError(
                    f"{self._wish.env} was started again {PATIENCE} times without a single step: {lost}",
                    fix="see what it printed above; isolate=False shows the whole error",
                )
            self._lives[index] += 1
            self._barren[index] += 1
            self.restarts += 1
            log.warning("%s: %s; it is started again (restart %d)", self._wish.env, lost, self.restarts)
            limit = time.monotonic() + self._start_timeout
            try:
                child = self._children[index] = self._spawn(index)
                if child.hello(limit) != self.spaces:
                    raise UserError(
                        f"{self._wish.env} came back with other observations or actions",
                        fix="let the factory make the same environment every time",
                    )
                child.send(reset)
                child.done(limit)
                return
            except Lost as again:
                lost = again

    def frame(self) -> NDArray[np.uint8]:
        if self._wish.render_mode is None:
            raise UserError(
                f"there are no pictures of {self._wish.env}", fix='make it with render_mode="rgb_array"'
            )
        child = self._children[0]
        child.send(there.FRAME)
        try:
            return child.picture(time.monotonic() + self._step_timeout)
        except Lost as lost:
            child.kill()  # the next step finds it dead, and starts it again
            raise RetryError(f"there is no picture of {self._wish.env}: {lost}") from None

    def close(self) -> None:
        """Simulators have a moment to end in good order, all of them the same one."""
        for child in self._children:
            child.hang_up()
        limit = time.monotonic() + FAREWELL
        for child in self._children:
            child.end(limit)
        self._forget()

    def _abandon(self) -> None:
        for child in self._children:
            child.kill()
        self._forget()

    def _forget(self) -> None:
        self._children = []
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1
