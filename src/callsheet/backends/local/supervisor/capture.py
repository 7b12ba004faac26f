"""A container's output, from its pipe to its log file: bounded in rate, in size and in memory.

A process that floods its log slows down itself, not its neighbors: each pipe is read at most every few milliseconds,
so that a full pipe makes the writer wait; after some megabytes at that rate, less often still. The file is rotated and
the oldest part dropped and counted. A full disk costs log lines, which are counted too, but never the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Callable

from callsheet.metrics.files import rotate

PIPE_BYTES = 256 * 1024
PAUSE = 0.02
"""Seconds between two reads of one busy pipe; with PIPE_BYTES, at most about 13 MB/s for each container."""
FLOOD_PAUSE = 0.08
"""The same for a pipe that has used up its allowance: about 3 MB/s. What disturbs neighbors is how often a flooding
process is woken, not how much it writes each time."""
ALLOWANCE = 16 * 1024 * 1024
"""Bytes that a container may write at the faster rate; it earns them back at the slower one."""
MANY_PIPES = 8
"""With more busy pipes than this, the pause grows, so that their total is bounded too."""
FILE_BYTES = 10 * 1024 * 1024
FILES = 5
"""The newest part and four older ones, as Kubernetes keeps them."""
TAIL_BYTES = 512
TIME_STEP = 1.0


def times_path(path: str) -> str:
    """The file beside a log with the times of its parts: lines of ``unix-time offset``."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.times")


class LogFile:
    """A log on disk in numbered parts: ``x.log`` is the newest, ``x.log.1`` the one before."""

    def __init__(self, path: str, on_change: Callable[[], None], *, file_bytes: int = FILE_BYTES) -> None:
        self.path = path
        self.written = 0
        self.dropped = 0
        self.error = ""
        self.tail = b""
        self._on_change = on_change
        self._file_bytes = file_bytes
        self._fd = -1
        self._size = 0
        self._timed = 0.0

    def write(self, data: bytes) -> None:
        """Append; what does not fit on the disk is counted as dropped."""
        self.written += len(data)
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        view = memoryview(data)
        try:
            self._open()
            while view:
                if self._size >= self._file_bytes:
                    self._rotate()
                count = os.write(self._fd, view[: self._file_bytes - self._size])
                self._size += count
                view = view[count:]
        except OSError as error:
            self.dropped += len(view)
            self._set_error(f"{error.strerror} ({self.path})")
        else:
            self._set_error("")

    def _set_error(self, error: str) -> None:
        if error != self.error:
            self.error = error
            self._on_change()

    def _open(self) -> None:
        if self._fd < 0:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            self._size = os.fstat(self._fd).st_size
        now = time.monotonic()
        if now - self._timed >= TIME_STEP or self._size == 0:
            self._timed = now
            with open(times_path(self.path), "a", encoding="ascii") as times:
                times.write(f"{time.time():.3f} {self._size}\n")

    def _rotate(self) -> None:
        oldest = f"{self.path}.{FILES - 1}"
        if os.path.exists(oldest):
            self.dropped += os.path.getsize(oldest)
        rotate(self.path, FILES)
        rotate(self.path, FILES, name=times_path)
        self.close()
        self._timed = 0.0
        self._open()

    def end_line(self) -> None:
        """Finish a line that a process left open, so that the next one's output does not run into it."""
        if self.tail and not self.tail.endswith(b"\n"):
            self.write(b"\n")

    def last_line(self) -> str:
        """The last line that has something in it."""
        lines = [line for line in self.tail.replace(b"\r", b"\n").split(b"\n") if line.strip()]
        return lines[-1].decode(errors="replace") if lines else ""

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


class Capture:
    """The reading end of one process's output."""

    busy = 0

    def __init__(self, loop: asyncio.AbstractEventLoop, log: LogFile) -> None:
        self._loop = loop
        self._log = log
        self._timer: asyncio.TimerHandle | None = None
        self._allowance = float(ALLOWANCE)
        self._seen = time.monotonic()
        self._fd, self.write_end = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        os.set_blocking(self._fd, False)
        with contextlib.suppress(OSError):  # otherwise the default size, so the writer waits sooner
            fcntl.fcntl(self._fd, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_BYTES)
        loop.add_reader(self._fd, self._read)

    def started(self) -> None:
        """The process has its end of the pipe; close ours."""
        os.close(self.write_end)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, PIPE_BYTES)
        except BlockingIOError:
            return
        self._loop.remove_reader(self._fd)
        if not data:
            return
        self._log.write(data)
        Capture.busy += 1
        self._timer = self._loop.call_later(
            self._pause(len(data)) * max(1.0, Capture.busy / MANY_PIPES), self._resume
        )

    def _pause(self, size: int) -> float:
        now = time.monotonic()
        earned = (now - self._seen) * PIPE_BYTES / FLOOD_PAUSE
        self._allowance = max(0.0, min(ALLOWANCE, self._allowance + earned) - size)
        self._seen = now
        return PAUSE if self._allowance > 0 else FLOOD_PAUSE

    def _resume(self) -> None:
        Capture.busy -= 1
        self._timer = None
        self._loop.add_reader(self._fd, self._read)

    def finish(self) -> None:
        """Read what is left in the pipe, then close it. Called when the process has exited."""
        if self._timer:
            self._timer.cancel()
            Capture.busy -= 1
        self._loop.remove_reader(self._fd)
        try:
            while data := os.read(self._fd, PIPE_BYTES):
                self._log.write(data)
        except BlockingIOError:
            pass  # a process that outlived its parent still holds the other end
        os.close(self._fd)
