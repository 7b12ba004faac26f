"""Finds a run's processes in /proc, by their environment, and signals them.

A process that forked away, changed its session or lost its parent still has the run's id in its environment. Linux
only: elsewhere nothing is found, and process groups must do.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

from callsheet import contract


def environment(pid: int) -> frozenset[bytes]:
    """The variables that a process was started with, as ``NAME=value``; empty when it is gone or not ours."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return frozenset(file.read().split(b"\0"))
    except OSError:
        return frozenset()


def identity(run: str, role: str = "", index: int | None = None, container: str = "") -> frozenset[bytes]:
    """The variables that identify the processes of a run, a replica or a container."""
    pairs = {contract.RUN: run, contract.ROLE: role, contract.CONTAINER: container}
    if index is not None:
        pairs[contract.INDEX] = str(index)
    return frozenset(f"{name}={value}".encode() for name, value in pairs.items() if value)


def find_processes(wanted: frozenset[bytes]) -> list[int]:
    """Every process of the caller's user whose environment has all of `wanted`, except the caller.

    Root can read everybody's environment, and anybody can set our variables in theirs: another user's process could
    otherwise keep a run from ending.
    """
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    own = os.getpid()
    pids = [int(name) for name in names if name.isdecimal()]
    return [
        pid
        for pid in pids
        if pid != own and wanted <= environment(pid) and is_own(pid) and not is_zombie(pid)
    ]


def is_own(pid: int) -> bool:
    """Whether a process is of the caller's user, by any of its user ids."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return any(
                line.startswith(b"Uid:") and os.geteuid() in map(int, line.split()[1:]) for line in file
            )
    except OSError:
        return False


def is_zombie(pid: int) -> bool:
    """Whether a process has ended and only waits to be reaped, or is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def children(pid: int) -> list[int]:
    """Direct children of a process."""
    pids: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                pids += map(int, file.read().split())
    except OSError:
        pass
    return pids


def with_descendants(roots: Iterable[int]) -> list[int]:
    """The processes and all their descendants, parents first."""
    pids = list(roots)
    for pid in pids:
        pids += children(pid)
    return pids


def send_signal(pids: Iterable[int], number: int) -> None:
    """Signal every process that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def end_run(run: str, grace: float) -> int:
    """End every process of a run: SIGTERM, then SIGKILL after `grace` seconds. Returns how many there were."""
    wanted = identity(run)
    seen: set[int] = set()
    last = time.monotonic() + grace
    number = signal.SIGTERM
    while alive := find_processes(wanted):
        if number == signal.SIGKILL:
            send_signal(alive, number)
        else:
            send_signal(set(alive) - seen, number)
        seen.update(alive)
        if time.monotonic() >= last:
            number = signal.SIGKILL
        time.sleep(0.02)  # polls /proc: nothing tells when a process that is no child of ours has ended
    return len(seen)
