"""Finding a run's processes by what they carry in their environment.

A process that forked away, changed its session or lost its parent still holds the run's id in its environment;
that is how it is found. Linux only: elsewhere nothing is found, and process groups must do.
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


def marks(run: str, role: str = "", index: int | None = None, container: str = "") -> frozenset[bytes]:
    """The variables that tell a process of this run, replica or container."""
    pairs = {contract.RUN: run, contract.ROLE: role, contract.CONTAINER: container}
    if index is not None:
        pairs[contract.INDEX] = str(index)
    return frozenset(f"{name}={value}".encode() for name, value in pairs.items() if value)


def carrying(wanted: frozenset[bytes]) -> list[int]:
    """Every process of the caller's user whose environment holds all of `wanted`, except the caller.

    Root can read everybody's environment, and anybody can put our marks into theirs: another user's processes would
    keep a run from ending for as long as there is one.
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
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                found += map(int, file.read().split())
    except OSError:
        pass
    return found


def tree(roots: Iterable[int]) -> list[int]:
    """The processes and all their descendants, parents first."""
    found = list(roots)
    for pid in found:
        found += children(pid)
    return found


def send(pids: Iterable[int], number: int) -> None:
    """Signal each process that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def sweep(run: str, grace: float) -> int:
    """End every process of a run: SIGTERM, then SIGKILL after `grace` seconds. How many there were."""
    wanted = marks(run)
    seen: set[int] = set()
    last = time.monotonic() + grace
    number = signal.SIGTERM
    while found := carrying(wanted):
        if number == signal.SIGKILL:
            send(found, number)
        else:
            send(set(found) - seen, number)
        seen.update(found)
        if time.monotonic() >= last:
            number = signal.SIGKILL
        time.sleep(0.02)  # polls /proc: nothing tells when a process that is no child of ours has ended
    return len(seen)
