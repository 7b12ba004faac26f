"""Where lines and events are written: rotated local files, or parts that are uploaded to a remote store.

A full disk or an unavailable store loses metrics, which are counted, and never stops the program.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from typing import Final, Protocol

from callsheet.errors import UserError

FILE_BYTES: Final = 8 * 1024 * 1024
FILES: Final = 4
"""A local file is rotated at this size, and this many files are kept."""
PART_BYTES: Final = 1024 * 1024
"""A remote part is closed at this size; it stays in memory until it is uploaded."""
MAX_WRITERS: Final = 32
"""Processes of one container that may write metrics at the same time."""


class Sink(Protocol):
    """Stores objects remotely; `callsheet.store.Store` is one."""

    def put(self, key: str, data: bytes) -> object:
        """Store the data under the key, replacing what was there."""


class RotatingFile:
    """Appends lines to ``<stem>.jsonl``, with older ones in ``.1``, ``.2``, ...; only whole lines are ever left.

    The file is locked; another process of the same container uses ``<stem>.2.jsonl``, and so on.
    """

    def __init__(self, folder: str, stem: str, *, limit: int = FILE_BYTES, files: int = FILES) -> None:
        self._folder = folder
        self._stem = stem
        self._limit = limit
        self._files = files
        self._fd = -1
        self.path = ""

    def write(self, data: bytes) -> None:
        """Append a whole line, or raise OSError."""
        if self._fd >= 0 and not os.fstat(self._fd).st_nlink:
            self.close()  # somebody removed it
        if self._fd < 0:
            self._open()
        size = os.fstat(self._fd).st_size
        if size and size + len(data) > self._limit:
            self._rotate()
            size = 0
        try:
            written = os.write(self._fd, data)
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, size)  # half a line would damage the next one
            raise

    def close(self) -> None:
        """Close the file and release its lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        os.makedirs(self._folder, exist_ok=True)
        for number in range(1, MAX_WRITERS + 1):
            stem = self._stem if number == 1 else f"{self._stem}.{number}"
            path = os.path.join(self._folder, f"{stem}.jsonl")
            fd = _open_locked(path)
            if fd >= 0:
                self._fd, self.path = fd, path
                _drop_torn_line(fd)
                return
        raise UserError(
            f"{MAX_WRITERS} processes already write metrics into {self._folder}",
            fix="export the metrics of fewer processes in one container",
        )

    def _rotate(self) -> None:
        rotate(self.path, self._files)
        self.close()
        self._open()


def rotate(path: str, parts: int, *, name: Callable[[str], str] = str) -> None:
    """Rename ``path`` to ``path.1``, ``path.1`` to ``path.2`` and so on; the oldest of the parts is overwritten.

    `name` gives the file to rename for each part, for files that lie beside them.
    """
    for number in range(parts - 2, -1, -1):
        source = f"{path}.{number}" if number else path
        with contextlib.suppress(FileNotFoundError):
            os.replace(name(source), name(f"{path}.{number + 1}"))


def _open_locked(path: str) -> int:
    """The file's descriptor, or -1 if another process writes it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return -1
        except OSError:
            return fd  # a file system without locks
        # Its owner may have rotated it between our two calls.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(fd)):
                return fd
        os.close(fd)


def _drop_torn_line(fd: int) -> None:
    """Remove the incomplete last line of a killed writer."""
    size = os.fstat(fd).st_size
    end = size
    while end:
        start = max(0, end - 65536)
        newline = os.pread(fd, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end < size:
        os.ftruncate(fd, end)


class Parts:
    """Bytes for a remote store, which cannot append: the growing part is uploaded repeatedly.

    One thread writes and another uploads. Only the newest bytes are kept in memory.
    """

    def __init__(
        self, sink: Sink, name: Callable[[int], str], *, head: bytes = b"", limit: int = PART_BYTES
    ) -> None:
        self._sink = sink
        self._name = name
        self._head = head
        self._limit = limit
        self._number = 0
        self._open = bytearray(head)
        self._put = len(head)
        """How much of the open part is uploaded."""
        self._closed: list[tuple[str, bytes]] = []
        self._lock = threading.Lock()
        self.dropped = 0
        """Bytes dropped because the store did not take them for too long."""

    def write(self, data: bytes) -> None:
        """Append bytes."""
        with self._lock:
            if len(self._open) > len(self._head) and len(self._open) + len(data) > self._limit:
                if self._put < len(self._open):
                    self._closed.append((self._name(self._number), bytes(self._open)))
                self._number += 1
                self._open = bytearray(self._head)
                self._put = len(self._head)
                if len(self._closed) > FILES:
                    self.dropped += len(self._closed.pop(0)[1])
            self._open += data

    def upload(self) -> None:
        """Upload what is new. What fails is retried next time."""
        while True:
            with self._lock:
                first = self._closed[0] if self._closed else None
                key, data = first or (self._name(self._number), bytes(self._open))
                if first is None and len(data) == self._put:
                    return
            self._sink.put(key, data)
            with self._lock:
                if first is not None:
                    if self._closed and self._closed[0] is first:
                        self._closed.pop(0)
                    continue
                if key == self._name(self._number):
                    self._put = len(data)
                return

    def close(self) -> None:
        """Do nothing: no file is open."""
