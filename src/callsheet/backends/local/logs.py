"""Reading the logs of a run from its folder: whole, the last lines, since a moment, or as they grow.

The files are read where the supervisor writes them, so that it is never slowed down by a reader, and the logs of a
finished run are read in the same way.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from callsheet.backends.base import LogQuery
from callsheet.backends.local.supervisor.capture import FILES, TIME_STEP, times_path
from callsheet.backends.log_chunks import LogChunk, matching

CHUNK = 256 * 1024
LONGEST_LINE = 64 * 1024
POLL = 0.1
NEW_LOGS = 0.3
"""Seconds between two looks for containers that have appeared."""


def read_logs(folder: str, query: LogQuery, finished: Callable[[], bool]) -> Iterator[LogChunk]:
    """Lines of the chosen containers; with `follow`, until `finished` says so and all is read."""
    chunks = _follow(folder, query, finished) if query.follow else _read_once(folder, query)
    return matching(chunks, query.grep)


def _read_once(folder: str, query: LogQuery) -> Iterator[LogChunk]:
    for log in _find(folder, query):
        log.freeze_end()
        log.position(query)
        yield from log.chunks()
        yield from log.rest()


def _follow(folder: str, query: LogQuery, finished: Callable[[], bool]) -> Iterator[LogChunk]:
    known: dict[str, _ContainerLog] = {}
    looked = -1.0
    while True:
        over = finished()  # asked before reading: what is written until then is read
        if over or looked < 0 or time.monotonic() - looked > NEW_LOGS:
            for log in _find(folder, query):
                if log.path not in known:
                    known[log.path] = log
                    if looked < 0:
                        log.position(query)
            looked = time.monotonic()
        quiet = True
        for log in known.values():
            for chunk in log.chunks(limit=CHUNK):
                quiet = False
                yield chunk
        if quiet and over:
            for log in known.values():
                yield from log.rest()
            return
        if quiet:
            time.sleep(POLL)  # no portable way to be notified when a file grows


def _find(folder: str, query: LogQuery) -> list[_ContainerLog]:
    """The logs that the query wants, by role, index and container."""
    logs = []
    for role in _names(folder):
        for index in sorted(filter(str.isdecimal, _names(os.path.join(folder, role))), key=int):
            for name in _names(os.path.join(folder, role, index)):
                container = name.removesuffix(".log")
                if name != container and query.wants(role, int(index), container):
                    path = os.path.join(folder, role, index, name)
                    logs.append(_ContainerLog(path, role, int(index), container))
    return logs


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


@dataclass
class _ContainerLog:
    """A reader's position in one container's log, which has numbered parts."""

    path: str
    role: str
    index: int
    container: str
    _inode: int = 0
    """The part being read; 0 before the first."""
    _offset: int = 0
    _end: tuple[int, int] | None = None
    """The last part to read, and how far; for ever when there is none."""
    _partial: bytes = field(default=b"", repr=False)

    def _parts(self) -> list[str]:
        """Existing parts, oldest first."""
        names = [f"{self.path}.{n}" for n in range(FILES - 1, 0, -1)] + [self.path]
        return [name for name in names if os.path.exists(name)]

    def freeze_end(self) -> None:
        """Read only what is there now, however fast more is written."""
        with contextlib.suppress(FileNotFoundError):
            state = os.stat(self.path)
            self._end = (state.st_ino, state.st_size)

    def position(self, query: LogQuery) -> None:
        """Skip what the query does not want. The log may be rotated meanwhile: then look again."""
        place = self._inode, self._offset
        for _ in range(10):
            self._inode, self._offset = place
            with contextlib.suppress(FileNotFoundError):
                self._position(query)
                return

    def _position(self, query: LogQuery) -> None:
        if query.since is not None:
            self._seek_time(time.time() - query.since)
        if query.tail is not None:
            self._seek_lines(query.tail)

    def _seek_time(self, moment: float) -> None:
        for part in self._parts():
            try:
                with open(times_path(part), encoding="ascii") as file:
                    entries = [line.split() for line in file]
            except FileNotFoundError:
                continue
            for stamp, offset in entries:
                if float(stamp) + TIME_STEP > moment:
                    self._inode, self._offset = os.stat(part).st_ino, int(offset)
                    return
        self._seek_end()

    def _seek_end(self) -> None:
        if self._parts():
            state = os.stat(self.path)
            self._inode, self._offset = state.st_ino, state.st_size

    def _seek_lines(self, count: int) -> None:
        """Place the reader before the last lines, but never before where it stands."""
        floor = (self._inode, self._offset)
        parts = self._parts()
        inodes = [os.stat(part).st_ino for part in parts]
        oldest = inodes.index(floor[0]) if floor[0] in inodes else 0
        last, size = self._end or (0, 0)
        if last in inodes:
            parts = parts[: inodes.index(last) + 1]
        left = count
        for number in range(len(parts) - 1, oldest - 1, -1):
            start = floor[1] if inodes[number] == floor[0] else 0
            with open(parts[number], "rb") as file:
                if os.fstat(file.fileno()).st_ino != inodes[number]:
                    raise FileNotFoundError(parts[number])  # it was rotated since we listed them
                file.seek(start)
                data = file.read(max(0, size - start) if inodes[number] == last else -1)
            count_here = data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
            self._inode, self._offset = inodes[number], start
            if count_here >= left:
                ends = data.rstrip(b"\n").split(b"\n") if left else []
                kept = sum(len(line) + 1 for line in ends[len(ends) - left :]) if left else 0
                kept -= 0 if data.endswith(b"\n") or not left else 1
                self._offset = start + len(data) - kept
                return
            left -= count_here

    def chunks(self, limit: int | None = None) -> Iterator[LogChunk]:
        """Whole lines from here on, at most about `limit` bytes of them."""
        budget = limit or float("inf")
        while budget > 0:
            data = self._read()
            if not data:
                return
            budget -= len(data)
            data = self._partial + data
            at = data.rfind(b"\n") + 1
            if len(data) - at > LONGEST_LINE:
                at = len(data)
            self._partial = data[at:]
            if at:
                yield self._chunk(data[:at])

    def rest(self) -> Iterator[LogChunk]:
        """A last line without an end."""
        if self._partial:
            yield self._chunk(self._partial)
            self._partial = b""

    def _chunk(self, data: bytes) -> LogChunk:
        return LogChunk.decode(self.role, self.index, self.container, data)

    def _read(self) -> bytes:
        """The next bytes; moves on to the next part at the end of one."""
        if self._is_read() or self._end == (self._inode, self._offset):
            return b""
        for _ in range(10):
            try:
                return self._read_from(self._remaining())
            except FileNotFoundError:
                continue  # rotated at this moment: look again
        return b""

    def _read_from(self, parts: list[tuple[str, int]]) -> bytes:
        for part, expected in parts:
            with open(part, "rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != expected:
                    raise FileNotFoundError
                if inode != self._inode:
                    self._inode, self._offset = inode, 0
                file.seek(self._offset)
                data = file.read(self._bounded(inode))
            if data:
                self._offset += len(data)
                return data
            if self._end and inode == self._end[0]:
                return b""
        return b""

    def _bounded(self, inode: int) -> int:
        """How many bytes to read at once from a part."""
        if self._end and inode == self._end[0]:
            return max(0, min(CHUNK, self._end[1] - self._offset))
        return CHUNK

    def _is_read(self) -> bool:
        """Whether the newest part is read to its end: the usual answer while following, at the cost of one look."""
        try:
            state = os.stat(self.path)
        except FileNotFoundError:
            return False
        return state.st_ino == self._inode and state.st_size == self._offset

    def _remaining(self) -> list[tuple[str, int]]:
        """The part being read and those after it, with their inodes; all when it was rotated away."""
        parts = self._listing()
        while parts != (again := self._listing()):
            parts = again  # a rotation in the middle of a listing would hide a part
        inodes = [inode for _, inode in parts]
        return parts[inodes.index(self._inode) :] if self._inode in inodes else parts

    def _listing(self) -> list[tuple[str, int]]:
        parts = []
        for part in self._parts():
            with contextlib.suppress(FileNotFoundError):
                parts.append((part, os.stat(part).st_ino))
        return parts
