"""A blocking call in its own process whose peer is killed for good: how it ends, and what it costs meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from callsheet.errors import CallsheetError
from callsheet.runtime.context import Context
from callsheet.runtime.keys import Keys
from callsheet.runtime.schema import Schema

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["numpy", "zmq", "msgspec", "waits"])
KILLED, STOPPED, TIMEOUT = 0.3, 0.9, 1.2
"""Seconds after the begin of a wait: when its peers are killed, when the process is asked to stop, when time is over."""
LARGE = {"x": np.zeros(1 << 18, "f4")}
SMALL = {"x": np.zeros(4, "f4")}
ROWS = {"x": np.zeros((2, 4), "f4")}
SCHEMA = Schema.of(SMALL)

GONE = "returned None"
Call = Callable[[float | None], object]


class Result(NamedTuple):
    """How a wait ended."""

    outcome: str
    """The name of the error, or what the call returned."""
    seconds: float
    cpu: float
    """Seconds of all threads of the process."""


class Side:
    """A process of a case, and a pipe to the other one."""

    def __init__(self, kind: str, name: str, address: str, read: int, write: int) -> None:
        self.context = Context(
            addresses={"e": address},
            role=name,
            keys=Keys(b"k" * 32),
            plaintext=kind == "network",
            memory=kind == "memory",
        )
        self._read, self._write = read, write

    def say(self, text: str) -> None:
        """Tell the other process."""
        os.write(self._write, text.encode())

    def heard(self, patience: float = 0.0) -> bool:
        """Whether the other process has said something."""
        return bool(select.select([self._read], [], [], patience)[0])

    def enough(self) -> None:
        """Have the other process serve no longer."""
        self.say("enough")
        assert self.heard(20)


@dataclass(frozen=True)
class Wait:
    """A call that needs its peer."""

    peer: Callable[[Side], object]
    """What the process does that is killed; it sleeps when it has done its part."""
    begin: Callable[[Side], Call]
    """Gets so far that the call waits for the peer."""
    timed_out: str = "TimedOut"
    """How it ends when time is over."""
    stopped: str = "Stopping"
    """How it ends when the process is asked to stop."""
    binds: bool = False
    """Whether the side that waits is the one that listens."""
    peers: int = 1
    at_once: bool = False
    """Whether it ends by itself, at the latest when the peer is gone."""
    longer: float = 0.0
    """Seconds for which it may go on after the process was asked to stop."""


def measure(wait: Wait, kind: str, how: str, tell: Any) -> None:
    """Run one wait in this process, which has done nothing else; its peers are its children."""
    pipes = [(os.pipe(), os.pipe()) for _ in range(wait.peers)]
    pids = [_fork(wait, kind, index, ours[0], theirs[1]) for index, (ours, theirs) in enumerate(pipes)]
    where = "127.0.0.1:0" if wait.binds else ",".join(os.read(theirs[0], 99).decode() for _, theirs in pipes)
    side = Side(kind, "waits", where, pipes[0][1][0], pipes[0][0][1])
    call = wait.begin(side)
    cpu, begun = time.process_time(), time.monotonic()
    threading.Timer(KILLED, _kill, [pids]).start()
    if how == "stop":
        threading.Timer(STOPPED, side.context.stop.set).start()
    try:
        outcome = f"returned {call(TIMEOUT if how == 'timeout' else None)!r}"
    except CallsheetError as error:
        outcome = type(error).__name__
    tell.send(Result(outcome, time.monotonic() - begun, time.process_time() - cpu))
    tell.close()
    os._exit(0)


def _kill(peers: list[int]) -> None:
    for pid in peers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _fork(wait: Wait, kind: str, index: int, read: int, write: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            where = os.read(read, 99).decode() if wait.binds else "127.0.0.1:0"
            wait.peer(Side(kind, f"peer-{index}", where, read, write))
            while True:
                signal.pause()
        finally:
            os._exit(1)
    return pid
