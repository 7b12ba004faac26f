"""A worker process as its owner sees it: started, spoken to with a time limit, and reliably ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from callsheet.errors import Misconfigured, UserError
from callsheet.rl.envs.base import EnvRequest
from callsheet.rl.envs.isolated import worker
from callsheet.rl.spaces import Spaces

CLOSE_TIMEOUT: Final = 5.0
"""Seconds for a simulator to close."""


class WorkerLost(Exception):
    """The worker is unusable; the text says why."""


class WorkerProcess:
    """A process that runs some of the environments."""

    def __init__(self, request: EnvRequest, total: int, spec: str, memory: int) -> None:
        message = _encode(worker.Start(request, total, spec, sys.path))
        ours, theirs = Pipe()
        lifeline, self._lifeline = os.pipe()
        self._connection: Connection[Any, Any] = ours
        self._readable = select.poll()
        self._readable.register(ours.fileno(), select.POLLIN)
        try:
            # Its own process group: the simulator's helpers are killed with it, and Ctrl-C reaches only the owner.
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "callsheet.rl.envs.isolated.worker",
                    *map(str, (theirs.fileno(), memory, lifeline)),
                ],
                pass_fds=(theirs.fileno(), memory, lifeline),
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        finally:
            theirs.close()
            os.close(lifeline)
        self.send(message)

    def send(self, message: bytes) -> None:
        """Send without waiting. A dead process is noticed when its answer is awaited."""
        with suppress(OSError):
            self._connection.send_bytes(message)

    def receive_spaces(self, limit: float) -> Spaces:
        return Spaces.from_json(self._receive(limit, "starting"))

    def receive_done(self, limit: float) -> None:
        self._receive(limit, "its step")

    def receive_frame(self, limit: float) -> NDArray[np.uint8]:
        shape = msgspec.json.decode(self._receive(limit, "rendering"), type=worker.FrameShape).size
        data = self._receive(limit, "rendering")
        return np.frombuffer(data, np.uint8).reshape(shape).copy()

    def _receive(self, limit: float, what: str) -> bytes:
        if self._connection.closed:  # killed before; its descriptor may belong to another file by now
            raise WorkerLost(f"its process {self._ending()} before {what}")
        try:
            # `Connection.poll` makes a selector each time, which takes longer than a small environment's step.
            if not self._readable.poll(max(0.0, limit - time.monotonic()) * 1000):
                raise WorkerLost(f"{what} took too long")
            answer = self._connection.recv_bytes()
        except (EOFError, OSError):
            raise WorkerLost(f"its process {self._ending()} during {what}") from None
        if answer.startswith(worker.ERROR):
            failure = msgspec.json.decode(answer.removeprefix(worker.ERROR), type=worker.Failure)
            if failure.final:
                raise Misconfigured(failure.message, fix=failure.fix)
            raise WorkerLost(f"{failure.message} (during {what})")
        return answer

    def _ending(self) -> str:
        try:
            code = self._process.wait(CLOSE_TIMEOUT)
        except subprocess.TimeoutExpired:
            return "stopped answering"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"

    def kill(self) -> None:
        """End it and its helpers at once; returns when it can write no more."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def hang_up(self) -> None:
        """Have it close its simulators and end."""
        self._connection.close()

    def end(self, limit: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, limit - time.monotonic()))
        self.kill()


def _encode(start: worker.Start) -> bytes:
    request = start.request
    for name, value in request.options.items():
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise UserError(
                f"the option {name!r} of {request.env} cannot be sent to a worker process: {error}",
                fix="use numbers, strings, lists and dicts, or isolate=False",
            ) from error
    return msgspec.json.encode(start)
