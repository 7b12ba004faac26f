"""Reads the newest exported metrics of each process, at a bounded cost, even from damaged files."""

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

TAIL_BYTES: Final = 64 * 1024
"""Read from the end of a file first; more only if the line is longer."""
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
REQUEST: Final = (
    b"GET /metrics HTTP/1.1\r\nHost: metrics\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
)
"""Requests the newest line from a process's port."""
_MAX_FLOAT: Final = sys.float_info.max
STALE_INTERVALS: Final = 3
"""A line older than this many intervals is stale, unless the process has ended."""


@dataclass(frozen=True, slots=True)
class ProcessMetrics:
    """The newest metrics of one process."""

    role: str
    index: int
    container: str
    time: float
    """When they were read."""
    interval: float = 5.0
    """Seconds between two lines."""
    last: bool = False
    """Whether the process has ended and this is its last line."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Value by name; for a histogram its count, sum and nonempty buckets."""
    rates: dict[str, float | None] = field(default_factory=dict)
    """Growth of counters per second."""
    recent: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """Quantiles of histograms since the previous line."""
    shown: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """``role/index``, with the container if the role is a group."""
        own = f"{self.role}/{self.index}"
        return own if self.container == self.role else f"{own}/{self.container}"

    def is_current(self, now: float) -> bool:
        """Whether its rates are current."""
        return not self.last and now - self.time <= max(15.0, STALE_INTERVALS * self.interval)

    def to_data(self) -> dict[str, Any]:
        """As JSON-compatible data."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class ShownMetric:
    """One number for people."""

    name: str
    value: float
    unit: str = ""
    """Empty, ``seconds``, ``bytes``, ``/s``, ``bytes/s`` or ``share``."""


def parse(data: bytes) -> ProcessMetrics | None:
    """Parse a line; None if it is incomplete or not ours."""
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


def read_newest(path: str) -> ProcessMetrics | None:
    """The newest complete line of a file."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            tail = TAIL_BYTES
            while True:
                start = max(0, size - tail)
                file.seek(start)
                *lines, torn = file.read(size - start).split(b"\n")
                # The first line may be the rest of a longer one.
                for line in reversed(lines if start == 0 else lines[1:]):
                    metrics = parse(line)
                    if metrics is not None:
                        return metrics
                if start == 0 or tail >= MAX_LINE_BYTES:
                    return parse(torn)
                tail *= 4
    except OSError:
        return None


def is_complete(data: bytes) -> bool:
    """Whether this is the port's whole response. A proxy may keep the connection open after it."""
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
    """Parse the response to `REQUEST`."""
    head, _, body = data.partition(b"\r\n\r\n")
    return parse(body) if head.startswith(b"HTTP/1.1 200 ") else None


def fetch(address: str, timeout: float = 1.0) -> ProcessMetrics | None:
    """The newest metrics from a process's port; None if it does not answer in time."""
    import socket

    data = b""
    limit = time.monotonic() + timeout
    try:
        with socket.create_connection(split_address(address), timeout) as connection:
            connection.sendall(REQUEST)
            while not is_complete(data):
                left = limit - time.monotonic()
                if left <= 0 or len(data) > MAX_LINE_BYTES:
                    return None
                connection.settimeout(left)
                piece = connection.recv(1 << 16)
                if not piece:
                    return None
                data += piece
    except OSError:
        return None
    return from_response(data)


class FolderReader:
    """Reads the metrics in a run's folder repeatedly, without opening unchanged files."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.path.join(folder, "metrics")
        self._known: dict[str, tuple[tuple[int, int, int], ProcessMetrics | None]] = {}

    def read(self) -> list[ProcessMetrics]:
        """The newest metrics of every process, sorted by role, index and container."""
        newest = {}
        for path in _files(self._folder):
            metrics = self._newest(path)
            if metrics is not None:
                newest[path] = metrics
        self._known = {path: known for path, known in self._known.items() if path in newest}
        return sorted(newest.values(), key=lambda item: (item.role, item.index, item.container, -item.time))

    def _newest(self, path: str) -> ProcessMetrics | None:
        try:
            state = os.stat(path)
        except OSError:
            return None
        mark = (state.st_ino, state.st_size, state.st_mtime_ns)
        known = self._known.get(path)
        if known is None or known[0] != mark:
            metrics = read_newest(path)
            if metrics is None and state.st_size == 0:
                metrics = read_newest(f"{path}.1")  # just rotated, or the disk is full
            known = self._known[path] = (mark, metrics)
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
) -> dict[str, list[ShownMetric]]:
    """The numbers to show for each role. While a run is active, only current values count."""
    now = time.time() if now is None else now
    by_role: dict[str, dict[tuple[str, str, str], list[float]]] = {}
    for process in processes:
        if not ended and not process.is_current(now):
            continue
        for item in process.shown:
            value, unit, method = item.get("value"), str(item.get("unit", "")), str(item.get("merge", "mean"))
            if isinstance(value, (int, float)) and abs(value) <= _MAX_FLOAT:
                key = (str(item.get("name", "")), unit, method)
                by_role.setdefault(process.role, {}).setdefault(key, []).append(float(value))
    return {
        role: [
            ShownMetric(name, merge(values, method), unit) for (name, unit, method), values in numbers.items()
        ]
        for role, numbers in by_role.items()
    }
