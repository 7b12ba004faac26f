"""One process of environments, seen by its owner: started, spoken to within a limit of time, and ended for certain."""

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
from callsheet.rl.envs.isolated import worker as there
from callsheet.rl.spaces import Spaces

FAREWELL: Final = 5.0
"""Seconds to close a simulator in good order."""


class Lost(Exception):
    """The process is of no more use; the text says why."""


class Child:
    """A process that serves some of the environments."""

    def __init__(self, wish: there.Wish, memory: int) -> None:
        message = _as_json(wish)
        mine, its = Pipe()
        lifeline, self._lifeline = os.pipe()
        self._connection: Connection[Any, Any] = mine
        self._answered = select.poll()
        self._answered.register(mine.fileno(), select.POLLIN)
        try:
            # A group of its own: a simulator's helpers are killed with it, and Ctrl-C goes to the owner alone.
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "callsheet.rl.envs.isolated.worker",
                    *map(str, (its.fileno(), memory, lifeline)),
                ],
                pass_fds=(its.fileno(), memory, lifeline),
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        finally:
            its.close()
            os.close(lifeline)
        self.send(message)

    def send(self, message: bytes) -> None:
        """A process that is gone is noticed when its answer is awaited."""
        with suppress(OSError):
            self._connection.send_bytes(message)

    def hello(self, limit: float) -> Spaces:
        return Spaces.from_json(self._receive(limit, "starting"))

    def done(self, limit: float) -> None:
        self._receive(limit, "its step")

    def picture(self, limit: float) -> NDArray[np.uint8]:
        shape = msgspec.json.decode(self._receive(limit, "a picture"), type=there.Shape).size
        data = self._receive(limit, "a picture")
        return np.frombuffer(data, np.uint8).reshape(shape).copy()

    def _receive(self, limit: float, what: str) -> bytes:
        if self._connection.closed:  # killed before; the number of its file may be another's by now
            raise Lost(f"its process {self._ending()} before {what}")
        try:
            # `Connection.poll` makes a selector each time, which takes longer than a small environment's step.
            if not self._answered.poll(max(0.0, limit - time.monotonic()) * 1000):
                raise Lost(f"it took too long over {what}")
            answer = self._connection.recv_bytes()
        except (EOFError, OSError):
            raise Lost(f"its process {self._ending()} during {what}") from None
        if answer.startswith(there.ERROR):
            failure = msgspec.json.decode(answer.removeprefix(there.ERROR), type=there.Failure)
            if failure.final:
                raise Misconfigured(failure.message, fix=failure.fix)
            raise Lost(f"{failure.message} (during {what})")
        return answer

    def _ending(self) -> str:
        try:
            code = self._process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            return "fell silent"
        return (
            f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with the exit code {code}"
        )

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
        """Tell it to close its simulators and end."""
        self._connection.close()

    def end(self, limit: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, limit - time.monotonic()))
        self.kill()


def _as_json(wish: there.Wish) -> bytes:
    for name, value in wish.options.items():
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise UserError(
                f"the option {name!r} of {wish.env} cannot be sent to a process of its own: {error}",
                fix="use numbers, texts, lists and dicts, or isolate=False",
            ) from error
    return msgspec.json.encode(wish)
