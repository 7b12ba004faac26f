"""Reads what processes have exported: the newest line of each, at a bounded cost, whatever state its file is in."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from callsheet.metrics.json_lines import merge
from callsheet.metrics.targets import split_address

TAIL: Final = 64 * 1024
"""Bytes read from the end of a file at first; more only for a line that is longer."""
LONGEST_LINE: Final = 4 * 1024 * 1024
REQUEST: Final = (
    b"GET /metrics HTTP/1.1\r\nHost: metrics\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
)
"""What to send to a process's port for its newest line."""
_LARGEST: Final = sys.float_info.max
STALE: Final = 3
"""A line older than so many of its intervals tells nothing about a process that should still be writing."""


@dataclass(frozen=True, slots=True)
class ProcessMetrics:
    """The newest metrics of one process."""

    role: str
    index: int
    container: str
    time: float
    """When they were taken."""
    interval: float = 5.0
    """Seconds between two lines."""
    last: bool = False
    """Whether the process has ended, and said so."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Value by name; of a histogram its count, sum and filled buckets."""
    rates: dict[str, float | None] = field(default_factory=dict)
    """Of counters: how much they grow in a second."""
    recent: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """Of histograms: quantiles since the line before."""
    shown: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """``role/index``, and the container where a role is a group."""
        own = f"{self.role}/{self.index}"
        return own if self.container == self.role else f"{own}/{self.container}"

    def is_current(self, now: float) -> bool:
        """Whether its rates still hold."""
        return not self.last and now - self.time <= max(15.0, STALE * self.interval)

    def to_data(self) -> dict[str, Any]:
        """As JSON-compatible data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Shown:
    """One number for a person."""

    name: str
    value: float
    unit: str = ""
    """Empty, ``seconds``, ``bytes``, ``/s``, ``bytes/s`` or ``share``."""


def parse(data: bytes) -> ProcessMetrics | None:
    """A line's content; None when it is not a whole line of ours."""
    try:
        line = json.loads(data)
        return ProcessMetrics(
            role=str(line["role"]),
            index=int(line["index"]),
            container=str(line["container"]),
            time=float(line["time"]),
            interval=float(line["interval"]),
            last=bool(line["last"]),
            metrics=dict(line["metrics"]),
            rates=dict(line["rates"]),
            recent=dict(line["recent"]),
            shown=[dict(item) for item in line["shown"]],
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def newest(path: str) -> ProcessMetrics | None:
    """The newest whole line of a file: a torn one at its end is passed over."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            tail = TAIL
            while True:
                start = max(0, size - tail)
                file.seek(start)
                *lines, torn = file.read(size - start).split(b"\n")
                # What stands before the first line's end may be the rest of a longer line.
                for line in reversed(lines if start == 0 else lines[1:]):
                    found = parse(line)
                    if found is not None:
                        return found
                if start == 0 or tail >= LONGEST_LINE:
                    return parse(torn)
                tail *= 4
    except OSError:
        return None


def is_whole(data: bytes) -> bool:
    """Whether this is all of a port's answer: what lies between may keep the connection open."""
    head, end, body = data.partition(b"\r\n\r\n")
    length = next(
        (
            line.partition(b":")[2]
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ),
        b"",
    )
    length = length.strip()
    return bool(end) and length.isdigit() and len(length) < 20 and len(body) >= int(length)


def from_response(data: bytes) -> ProcessMetrics | None:
    """What a port answered to `REQUEST`."""
    head, _, body = data.partition(b"\r\n\r\n")
    return parse(body) if head.startswith(b"HTTP/1.1 200 ") else None


def ask(address: str, patience: float = 1.0) -> ProcessMetrics | None:
    """The newest metrics of the process that serves them there; None when it does not answer in time."""
    import socket

    data = b""
    limit = time.monotonic() + patience
    try:
        with socket.create_connection(split_address(address), patience) as connection:
            connection.sendall(REQUEST)
            while not is_whole(data):
                left = limit - time.monotonic()
                if left <= 0 or len(data) > LONGEST_LINE:
                    return None
                connection.settimeout(left)
                piece = connection.recv(1 << 16)
                if not piece:
                    return None
                data += piece
    except OSError:
        return None
    return from_response(data)


class Reader:
    """Reads the metrics of a run's folder again and again; a file that has not changed is not opened."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.path.join(folder, "metrics")
        self._known: dict[str, tuple[tuple[int, int, int], ProcessMetrics | None]] = {}

    def read(self) -> list[ProcessMetrics]:
        """The newest metrics of every process, by role, index and container; none costs one look."""
        found = {}
        for path in _files(self._folder):
            metrics = self._newest(path)
            if metrics is not None:
                found[path] = metrics
        self._known = {path: known for path, known in self._known.items() if path in found}
        return sorted(found.values(), key=lambda item: (item.role, item.index, item.container, -item.time))

    def _newest(self, path: str) -> ProcessMetrics | None:
        try:
            state = os.stat(path)
        except OSError:
            return None
        mark = (state.st_ino, state.st_size, state.st_mtime_ns)
        known = self._known.get(path)
        if known is None or known[0] != mark:
            found = newest(path)
            if found is None and state.st_size == 0:
                found = newest(f"{path}.1")  # rotated at this moment, or on a disk that is full
            known = self._known[path] = (mark, found)
        return known[1]


def _files(folder: str) -> Iterable[str]:
    for role in _entries(folder):
        for index in _entries(os.path.join(folder, role)):
            inside = os.path.join(folder, role, index)
            for name in _entries(inside):
                if name.endswith(".jsonl"):
                    yield os.path.join(inside, name)


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def shown_by_role(
    processes: Iterable[ProcessMetrics], *, ended: bool, now: float | None = None
) -> dict[str, list[Shown]]:
    """The numbers that a person wants, one of each for a role. While a run goes on, only what is current counts."""
    now = time.time() if now is None else now
    found: dict[str, dict[tuple[str, str, str], list[float]]] = {}
    for process in processes:
        if not ended and not process.is_current(now):
            continue
        for item in process.shown:
            value, unit, way = item.get("value"), str(item.get("unit", "")), str(item.get("merge", "mean"))
            if isinstance(value, (int, float)) and abs(value) <= _LARGEST:
                key = (str(item.get("name", "")), unit, way)
                found.setdefault(process.role, {}).setdefault(key, []).append(float(value))
    return {
        role: [Shown(name, merge(values, way), unit) for (name, unit, way), values in numbers.items()]
        for role, numbers in found.items()
    }
