"""Assigns the machine's GPUs, each to one container of one run.

A GPU is reserved by binding an abstract Unix socket with its name: the system gives each name to one process of the
machine, and frees it when that process ends, however it ends.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Mapping

from callsheet.errors import UserError

Owner = tuple[str, int, str]
"""Role, index, container."""


def reserve(name: str) -> socket.socket | None:
    """Reserve a machine-wide name; None if another process has it."""
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if sys.platform != "linux":
        return holder
    try:
        holder.bind(f"\0callsheet/{name}")
    except OSError:
        holder.close()
        return None
    return holder


class GpuPool:
    """The devices that this run may use, and which container has which."""

    def __init__(self, devices: Iterable[str]) -> None:
        self._free = list(devices)
        self._given: dict[Owner, tuple[str, ...]] = {}
        self._reservations: dict[str, socket.socket] = {}

    def of(self, role: str, index: int, container: str) -> tuple[str, ...]:
        """The devices of one container."""
        return self._given.get((role, index, container), ())

    def assign(self, needed: Mapping[Owner, int]) -> None:
        """Give every container in `needed` its devices and release all others; all or nothing."""
        for owner in [owner for owner in self._given if owner not in needed]:
            self._give_back(owner)
        missing = {owner: count for owner, count in needed.items() if owner not in self._given}
        for owner, count in missing.items():
            devices = self._take(count)
            if len(devices) < count:
                self._release(devices)
                for given in missing:
                    self._give_back(given)
                raise UserError(
                    f"{owner[0]}/{owner[1]} needs {count} GPUs, and {len(devices)} are free on this machine",
                    fix="lower limits['nvidia.com/gpu'] or the replicas, or stop the run that holds them: callsheet ps",
                )
            self._given[owner] = tuple(devices)

    def _take(self, count: int) -> list[str]:
        taken: list[str] = []
        for device in list(self._free):
            if len(taken) == count:
                break
            holder = reserve(f"gpu/{device}")
            if holder:
                self._reservations[device] = holder
                self._free.remove(device)
                taken.append(device)
        return taken

    def _give_back(self, owner: Owner) -> None:
        self._release(self._given.pop(owner, ()))

    def _release(self, devices: Iterable[str]) -> None:
        for device in devices:
            self._reservations.pop(device).close()
            self._free.append(device)
