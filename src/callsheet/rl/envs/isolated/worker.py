"""A process that runs environments for its owner, so that a crash or hang harms nothing else.

The owner writes actions into shared memory and sends one byte; the worker steps, writes the results and answers with one
byte. Longer messages are JSON.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final

import msgspec
import numpy as np

from callsheet.errors import UserError
from callsheet.rl.envs.base import Environments, EnvRequest, Observations, Step
from callsheet.rl.envs.isolated.shared_memory import SharedArrays

STEP: Final = b"s"
RESET: Final = b"r"
FRAME: Final = b"f"
DONE: Final = b"."
ERROR: Final = b"!"


class Start(msgspec.Struct, frozen=True):
    """The first message to a worker."""

    request: EnvRequest
    total: int
    """Environments of all workers together."""
    spec: str
    """The environment's entry in the owner's Gymnasium registry, as JSON."""
    path: list[str]
    """The owner's module search path."""


class Reset(msgspec.Struct, frozen=True):
    seed: int | None = None


class Failure(msgspec.Struct, frozen=True):
    """An error for the owner to raise."""

    message: str
    fix: str = ""
    final: bool = False
    """Whether it is the user's mistake, which a restart cannot fix."""


class FrameShape(msgspec.Struct, frozen=True):
    """The shape of a frame; its bytes follow."""

    size: tuple[int, ...]


def main() -> None:
    connection, file, lifeline = Connection(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    _die_with(lifeline)
    # The owner handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _serve(connection, file)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except UserError as error:
        _send_failure(connection, Failure(error.message, error.fix, final=True))
    except Exception as error:  # noqa: BLE001 - a simulator may raise anything
        traceback.print_exc()
        message = "".join(traceback.format_exception_only(error)).strip()
        _send_failure(connection, Failure(message))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # The simulator's threads must not keep the process alive.
        os._exit(0)


def _send_failure(connection: Connection, failure: Failure) -> None:
    with suppress(OSError):
        connection.send_bytes(ERROR + msgspec.json.encode(failure))


def _die_with(lifeline: int) -> None:
    """Have the kernel kill this process when its owner is gone, even while a simulator hangs in native code."""
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        try:
            gone = os.read(lifeline, 1) == b""
        except BlockingIOError:
            gone = False
        if gone:
            os._exit(0)


def _serve(connection: Connection, file: int) -> None:
    start = msgspec.json.decode(connection.recv_bytes(), type=Start)
    request = start.request
    sys.path[:] = [*start.path, *(entry for entry in sys.path if entry not in start.path)]
    import gymnasium as gym

    from callsheet.rl.envs.build import build

    if start.spec:
        spec = gym.envs.registration.EnvSpec.from_json(start.spec)
        gym.registry.setdefault(spec.id, spec)
    environments = build(request)
    try:
        rows = slice(request.first, request.first + request.count)
        shared = SharedArrays(file, environments.spaces, start.total, rows)
        connection.send_bytes(environments.spaces.to_json())
        _answer(connection, environments, shared)
    finally:
        environments.close()


def _answer(connection: Connection, environments: Environments, shared: SharedArrays) -> None:
    actions = shared.arrays["actions"]
    while True:
        message = connection.recv_bytes()
        if message == STEP:
            _write_step(shared, environments.step(actions.copy()))
            connection.send_bytes(DONE)
        elif message == FRAME:
            frame = np.ascontiguousarray(environments.frame())
            connection.send_bytes(msgspec.json.encode(FrameShape(frame.shape)))
            connection.send_bytes(frame.tobytes())
        else:
            seed = msgspec.json.decode(message.removeprefix(RESET), type=Reset).seed
            _write_reset(shared, environments, environments.reset(seed))
            connection.send_bytes(DONE)


def _write_step(shared: SharedArrays, step: Step) -> None:
    for name, array in step.observations.items():
        shared.observations[name][...] = array
    for name in ("rewards", "terminated", "truncated", "valid", "first"):
        shared.arrays[name][...] = getattr(step, name)
    if shared.masks is not None:
        shared.masks[...] = 1 if step.masks is None else step.masks


def _write_reset(shared: SharedArrays, environments: Environments, observations: Observations) -> None:
    for name, array in observations.items():
        shared.observations[name][...] = array
    if shared.masks is not None:
        shared.masks[...] = 1 if environments.masks is None else environments.masks


if __name__ == "__main__":
    main()
