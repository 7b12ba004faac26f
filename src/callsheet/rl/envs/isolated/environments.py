"""Environments in worker processes, which are killed and restarted when they die, fail or hang."""

from __future__ import annotations

import logging
import os
import time
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from callsheet.errors import RetryError, UserError
from callsheet.rl.envs.base import EnvRequest, Observations, Step, available_cores, seed_of
from callsheet.rl.envs.isolated import worker
from callsheet.rl.envs.isolated.process import CLOSE_TIMEOUT, WorkerLost, WorkerProcess
from callsheet.rl.envs.isolated.shared_memory import SharedArrays, anonymous_file

log = logging.getLogger("callsheet.rl")
MAX_FRUITLESS_RESTARTS = 5
"""Restarts of a worker without a single step in between before we give up."""


class IsolatedEnvironments:
    """The environments of several worker processes as one."""

    def __init__(
        self,
        request: EnvRequest,
        spec: str,
        *,
        step_timeout: float,
        start_timeout: float,
        processes: int | None = None,
    ) -> None:
        """`spec` is the environment's entry in Gymnasium's registry, as JSON."""
        self.count = request.count
        self.restarts = 0
        self._request, self._spec = request, spec
        self._step_timeout, self._start_timeout = step_timeout, start_timeout
        self._memory = anonymous_file()
        number = max(1, min(self.count, processes or available_cores()))
        edges = [self.count * index // number for index in range(number + 1)]
        self._shares = [slice(low, high) for low, high in pairwise(edges)]
        self._workers: list[WorkerProcess] = []
        self._starts = [0] * number
        self._fruitless = [0] * number
        try:
            for index in range(number):
                self._workers.append(self._start(index))
            limit = time.monotonic() + start_timeout
            spaces = [process.receive_spaces(limit) for process in self._workers]
        except WorkerLost as lost:
            self._kill()
            raise UserError(
                f"{request.env} could not be started: {lost}",
                fix="see its output above; isolate=False shows the whole error",
            ) from None
        except BaseException:
            self._kill()
            raise
        self.spaces = spaces[0]
        self._shared = SharedArrays(self._memory, self.spaces, self.count)

    def _start(self, index: int) -> WorkerProcess:
        share, starts = self._shares[index], self._starts[index]
        seed = self._request.seed
        request = msgspec.structs.replace(
            self._request,
            first=share.start,
            count=share.stop - share.start,
            seed=seed if starts == 0 else seed_of(seed, share.start, starts),
        )
        return WorkerProcess(request, self.count, self._spec, self._memory)

    @property
    def masks(self) -> NDArray[np.uint8] | None:
        return None if self._shared.masks is None else self._shared.masks.copy()

    def reset(self, seed: int | None = None) -> Observations:
        if seed is not None:
            self._request = msgspec.structs.replace(self._request, seed=seed)
        message = worker.RESET + msgspec.json.encode(worker.Reset(seed))
        self._run(message, self._start_timeout)
        return self._observations()

    def step(self, actions: NDArray[Any]) -> Step:
        self._shared.arrays["actions"][...] = actions
        broken = self._run(worker.STEP, self._step_timeout)
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

    def _run(self, message: bytes, timeout: float) -> NDArray[np.bool_]:
        """Send a message to all workers; returns the environments that were lost and restarted meanwhile."""
        broken = np.zeros(self.count, np.bool_)
        for process in self._workers:
            process.send(message)
        limit = time.monotonic() + timeout
        for index, process in enumerate(self._workers):
            try:
                process.receive_done(limit)
                if message == worker.STEP:
                    self._fruitless[index] = 0
            except WorkerLost as lost:
                broken[self._shares[index]] = True
                self._restart(index, lost)
        return broken

    def _restart(self, index: int, lost: WorkerLost) -> None:
        """Restart a worker until its environments have started an episode."""
        reset = worker.RESET + msgspec.json.encode(worker.Reset())
        name = self._request.env
        while True:
            self._workers[index].kill()
            if self._fruitless[index] == MAX_FRUITLESS_RESTARTS:
                raise RetryError(
                    f"{name} was restarted {MAX_FRUITLESS_RESTARTS} times without a single step: {lost}",
                    fix="see its output above; isolate=False shows the whole error",
                )
            self._starts[index] += 1
            self._fruitless[index] += 1
            self.restarts += 1
            log.warning("%s: %s; restarting it (restart %d)", name, lost, self.restarts)
            limit = time.monotonic() + self._start_timeout
            try:
                process = self._workers[index] = self._start(index)
                if process.receive_spaces(limit) != self.spaces:
                    raise UserError(
                        f"{name} has other observations or actions after its restart",
                        fix="let the factory make the same environment every time",
                    )
                process.send(reset)
                process.receive_done(limit)
                return
            except WorkerLost as again:
                lost = again

    def frame(self) -> NDArray[np.uint8]:
        name = self._request.env
        if self._request.render_mode is None:
            raise UserError(f"{name} cannot be rendered", fix='make it with render_mode="rgb_array"')
        process = self._workers[0]
        process.send(worker.FRAME)
        try:
            return process.receive_frame(time.monotonic() + self._step_timeout)
        except WorkerLost as lost:
            process.kill()  # the next step finds it dead and restarts it
            raise RetryError(f"{name} could not be rendered: {lost}") from None

    def close(self) -> None:
        """Give all simulators a moment to close."""
        for process in self._workers:
            process.hang_up()
        limit = time.monotonic() + CLOSE_TIMEOUT
        for process in self._workers:
            process.end(limit)
        self._release()

    def _kill(self) -> None:
        for process in self._workers:
            process.kill()
        self._release()

    def _release(self) -> None:
        self._workers = []
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1
