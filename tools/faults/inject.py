"""Faults as verbs on a member of a plane: each begins, lasts and is healed when it returns."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator

from tools.faults.machine import Disk, memory_limit, stop_for
from tools.faults.plane import Plane
from tools.faults.proxy import Direction, Script
from tools.faults.storeproxy import StoreProxy, StoreScript
from tools.faults.waiting import eventually

_PATIENCE = 60.0
_LONGEST = 20.0
FENCED = "another writer has taken over"


@contextlib.contextmanager
def connections(plane: Plane, name: str, script: Script) -> Iterator[None]:
    """A member's connections are like this in the block."""
    plane.follow(name, script)
    try:
        yield
    finally:
        plane.follow(name)


def _done(plane: Plane, name: str, what: str) -> int:
    return sum(proxy.done[what] for proxy in plane.proxies_of(name))


def kill(plane: Plane, name: str) -> None:
    """kill -9; it is started again at once."""
    before = plane.beat("starts", name).count
    plane.kill(name)
    eventually(lambda: plane.beat("starts", name).count > before, _PATIENCE, f"{name} is not back")


def stop(plane: Plane, name: str, seconds: float) -> None:
    """SIGSTOP, and SIGCONT later."""
    stop_for(plane.pid(name), seconds).join()


def out_of_memory(plane: Plane, name: str) -> None:
    """It takes memory until the kernel kills it; it is started again at once."""
    before = plane.beat("starts", name).count
    with memory_limit(plane.pid(name), 16):
        plane.kill(name, signal.SIGUSR1)
        eventually(lambda: plane.beat("starts", name).count > before, _PATIENCE, f"{name} is not back")


def cut(plane: Plane, name: str, times: int = 10, every: int = 20_000) -> None:
    """Its connections are reset in the middle of a frame, again and again."""
    _again(plane, name, "cut", times, Script(cut_every=every))


def corrupt(plane: Plane, name: str, times: int = 10, every: int = 20_000) -> None:
    """Bytes of its connections are changed, again and again."""
    _again(plane, name, "corrupted", times, Script(corrupt_every=every))


def _again(plane: Plane, name: str, what: str, times: int, script: Script) -> None:
    """Until it has happened so often; those who say little on a busy machine are hurt less often in the same time."""
    before = _done(plane, name, what)
    limit = time.monotonic() + _LONGEST
    with connections(plane, name, script):
        eventually(lambda: _done(plane, name, what) >= before + times or time.monotonic() > limit, _PATIENCE)
        eventually(lambda: _done(plane, name, what) > before, _PATIENCE, f"{name} is not hurt")


def partition(plane: Plane, name: str, seconds: float, *directions: Direction) -> None:
    """Nothing passes in these directions."""
    with connections(plane, name, Script(stalled=frozenset(directions))):
        time.sleep(seconds)


def slow(plane: Plane, name: str, seconds: float, delay: float = 0.1, rate: float = 100_000) -> None:
    """Its connections are slow."""
    with connections(plane, name, Script(delay=delay, rate=rate)):
        time.sleep(seconds)


def refuse(plane: Plane, name: str, seconds: float) -> None:
    """It cannot be reached."""
    with connections(plane, name, Script(refuse=True)):
        time.sleep(seconds)


def succession(plane: Plane, name: str, seconds: float, *, fenced: bool) -> None:
    """It is stopped, a successor takes over, and it wakes up: then it must see its end, where it writes to a store."""
    before = plane.beat("starts", name).count
    plane.kill(name, signal.SIGSTOP)
    old = plane.succeed(name)
    try:
        eventually(lambda: plane.beat("starts", name).count > before, _PATIENCE, f"{name} has no successor")
        time.sleep(seconds)
        old.send_signal(signal.SIGCONT)
        if fenced:
            eventually(lambda: old.poll() is not None, _PATIENCE, f"the old {name} goes on")
            assert FENCED in plane.output(name), plane.output(name)
    finally:
        old.kill()
        old.wait()


def full_disk(disk: Disk, seconds: float) -> None:
    """No byte is left."""
    disk.fill()
    try:
        time.sleep(seconds)
    finally:
        disk.empty()


def read_only_disk(disk: Disk, seconds: float) -> None:
    """Nothing can be written."""
    disk.read_only(True)
    try:
        time.sleep(seconds)
    finally:
        disk.read_only(False)


def store(proxy: StoreProxy, seconds: float, script: StoreScript) -> None:
    """The store answers like this."""
    proxy.follow(script)
    try:
        time.sleep(seconds)
    finally:
        proxy.follow(None)
