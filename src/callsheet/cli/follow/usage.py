"""CPU and memory usage of replicas, from one scan of /proc for all of them; empty on systems without /proc.

A process belongs to a replica if it descends from the replica's process or shares its session.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

PROC = "/proc"
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Usage:
    """What some processes use."""

    cpu: float = 0.0
    """1.0 is one busy CPU."""
    memory: int = 0
    """Bytes in RAM."""


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    session: int
    ticks: int
    born: int
    pages: int


class Sampler:
    """Remembers the previous scan, because CPU usage is a difference."""

    def __init__(self) -> None:
        self._before: dict[int, _Process] = {}
        self._when = 0.0

    def sample(self, pids: Mapping[Key, Iterable[int]]) -> dict[Key, Usage]:
        """The usage of each named set of processes."""
        table = _scan()
        now = time.monotonic()
        owner = _owners(table, {pid: name for name, members in pids.items() for pid in members})
        tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        elapsed = now - self._when if self._before else 0.0
        cpu: dict[Key, float] = {}
        memory: dict[Key, int] = {}
        for pid, name in owner.items():
            process, before = table[pid], self._before.get(pid)
            memory[name] = memory.get(name, 0) + process.pages * page
            if elapsed > 0:
                known = before is not None and before.born == process.born
                spent = process.ticks - (before.ticks if before is not None and known else 0)
                cpu[name] = cpu.get(name, 0.0) + spent / tick / elapsed
        self._before, self._when = table, now
        return {name: Usage(cpu.get(name, 0.0), used) for name, used in memory.items()}


def _owners(table: Mapping[int, _Process], roots: Mapping[int, Key]) -> dict[int, Key]:
    """Which set each process belongs to: its own, its session's, or that of its nearest ancestor with one."""
    owners: dict[int, Key] = {}
    for start in table:
        path, pid = [], start
        while pid in table and pid not in owners:
            path.append(pid)
            root = pid if pid in roots else table[pid].session
            if root in roots:
                owners[pid] = roots[root]
                break
            pid = table[pid].parent
        if pid in owners:
            owners.update(dict.fromkeys(path, owners[pid]))
    return owners


def _scan() -> dict[int, _Process]:
    table = {}
    try:
        names = os.listdir(PROC)
    except OSError:
        return {}
    for name in names:
        if not name.isdecimal():
            continue
        try:
            with open(f"{PROC}/{name}/stat", "rb") as file:
                # The command's name is in parentheses and may contain anything, even parentheses.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if len(fields) > 21:
            table[int(name)] = _Process(
                parent=int(fields[1]),
                session=int(fields[3]),
                ticks=int(fields[11]) + int(fields[12]),
                born=int(fields[19]),
                pages=int(fields[21]),
            )
    return table
