"""A process that holds environments for another one: it may die or hang, and nothing else is harmed.

Its owner writes actions into shared memory and sends one byte; it steps, writes what came of it, and answers with one
byte. Anything longer is JSON.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

import msgspec
import numpy as np

from callsheet.errors import UserError
from callsheet.rl.envs.base import Environments, Observations, Step
from callsheet.rl.envs.isolated.shared_memory import Shared

STEP: Final = b"s"
RESET: Final = b"r"
FRAME: Final = b"f"
DONE: Final = b"."
ERROR: Final = b"!"


class Wish(msgspec.Struct, frozen=True):
    """What the process is to make."""

    env: str
    total: int
    """How many environments there are in all processes."""
    seed: int
    options: dict[str, Any]
    render_mode: str | None = None
    first: int = 0
    """Which of them is the first of this process."""
    count: int = 0
    spec: str = ""
    """How its owner has it registered with Gymnasium, as JSON."""
    path: list[str] = []
    """Where to look for modules: as its owner does."""


class Reset(msgspec.Struct, frozen=True):
    seed: int | None = None


class Failure(msgspec.Struct, frozen=True):
    """An error to be raised by the owner."""

    message: str
    fix: str = ""
    final: bool = False
    """It will be the same the next time: the user's mistake."""


class Shape(msgspec.Struct, frozen=True):
    """The shape of a picture; its bytes follow."""

    size: tuple[int, ...]


def main() -> None:
    connection, file, lifeline = Connection(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    _end_with(lifeline)
    # A terminal's Ctrl-C and the end of a run are the owner's business.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _serve(connection, file)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    except UserError as error:
        _tell(connection, Failure(error.message, error.fix, final=True))
    except Exception as error:  # noqa: BLE001 - whatever a simulator raises
        traceback.print_exc()
        said = "".join(traceback.format_exception_only(error)).strip()
        _tell(connection, Failure(said))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # A simulator's threads must not keep the process alive.
        os._exit(0)


def _tell(connection: Connection, failure: Failure) -> None:
    with suppress(OSError):
        connection.send_bytes(ERROR + msgspec.json.encode(failure))


def _end_with(lifeline: int) -> None:
    """Have the kernel kill this process when its owner is gone, even while a simulator hangs in foreign code."""
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
    wish = msgspec.json.decode(connection.recv_bytes(), type=Wish)
    sys.path[:] = [*wish.path, *(entry for entry in sys.path if entry not in wish.path)]
    import gymnasium as gym

    from callsheet.rl.envs.build import build

    if wish.spec:
        spec = gym.envs.registration.EnvSpec.from_json(wish.spec)
        gym.registry.setdefault(spec.id, spec)
    environments = build(
        wish.env,
        wish.count,
        seed=wish.seed,
        first=wish.first,
        options=wish.options,
        render_mode=wish.render_mode,
    )
    try:
        rows = slice(wish.first, wish.first + wish.count)
        shared = Shared(file, environments.spaces, wish.total, rows)
        connection.send_bytes(environments.spaces.to_json())
        _answer(connection, environments, shared)
    finally:
        environments.close()


def _answer(connection: Connection, environments: Environments, shared: Shared) -> None:
    actions = shared.arrays["actions"]
    while True:
        message = connection.recv_bytes()
        if message == STEP:
            _write(shared, environments.step(actions.copy()))
            connection.send_bytes(DONE)
        elif message == FRAME:
            picture = np.ascontiguousarray(environments.frame())
            connection.send_bytes(msgspec.json.encode(Shape(picture.shape)))
            connection.send_bytes(picture.tobytes())
        else:
            seed = msgspec.json.decode(message.removeprefix(RESET), type=Reset).seed
            _write_start(shared, environments, environments.reset(seed))
            connection.send_bytes(DONE)


def _write(shared: Shared, step: Step) -> None:
    for name, array in step.observations.items():
        shared.observations[name][...] = array
    for name in ("rewards", "terminated", "truncated", "valid", "first"):
        shared.arrays[name][...] = getattr(step, name)
    if shared.masks is not None:
        shared.masks[...] = 1 if step.masks is None else step.masks


def _write_start(shared: Shared, environments: Environments, observations: Observations) -> None:
    for name, array in observations.items():
        shared.observations[name][...] = array
    if shared.masks is not None:
        shared.masks[...] = 1 if environments.masks is None else environments.masks


if __name__ == "__main__":
    main()
