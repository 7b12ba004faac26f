"""What a machine does to processes: signals by schedule, disks that fill up, clocks that jump, memory that runs out."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.faults.waiting import eventually


class Signals(threading.Thread):
    """Sends signals to a process by a schedule: seconds from the start, and what."""

    def __init__(self, pid: int, schedule: Sequence[tuple[float, signal.Signals]]) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._schedule = schedule
        self.start()

    def run(self) -> None:
        """Send each when its time has come."""
        begun = time.monotonic()
        for at, number in self._schedule:
            time.sleep(max(0.0, begun + at - time.monotonic()))
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)


def stop_for(pid: int, seconds: float) -> Signals:
    """SIGSTOP now, SIGCONT later."""
    return Signals(pid, [(0.0, signal.SIGSTOP), (seconds, signal.SIGCONT)])


@dataclass
class Disk:
    """A disk of some megabytes, which can be filled and made read-only. Needs root."""

    folder: Path
    megabytes: int

    @property
    def _ballast(self) -> Path:
        return self.folder / ".ballast"

    def fill(self) -> None:
        """Leave no byte."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 16))
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(512))

    def empty(self) -> None:
        """Give back what was filled."""
        self._ballast.unlink(missing_ok=True)

    def read_only(self, yes: bool) -> None:
        """Mount it anew; whoever has a file open for writing is waited for."""
        option = f"remount,{'ro' if yes else 'rw'}"
        mount = ["mount", "-o", option, str(self.folder)]
        eventually(lambda: subprocess.run(mount, capture_output=True, check=False).returncode == 0)


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int = 8) -> Iterator[Disk]:
    """A disk of our own."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        yield Disk(folder, megabytes)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@dataclass(frozen=True)
class Clock:
    """The clock of a process that was started with `environment`: it jumps, while monotonic time goes on."""

    file: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables that a process needs from its start."""
        import libfaketime  # type: ignore[import-untyped]

        library = Path(libfaketime.__file__).parent / "vendor/libfaketime/src/libfaketime.so.1"
        self.jump("+0")
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def jump(self, offset: str) -> None:
        """To so much from the real time, such as `+2d`."""
        new = self.file.with_suffix(".new")
        new.write_text(offset)
        new.rename(self.file)


@contextlib.contextmanager
def memory_limit(pid: int, megabytes: int) -> Iterator[None]:
    """Let a process have so much more memory and no more: the kernel kills it when it takes it. Needs root."""
    v1 = Path("/sys/fs/cgroup/memory")
    name, limit = (v1, "memory.limit_in_bytes") if v1.is_dir() else (Path("/sys/fs/cgroup"), "memory.max")
    group = name / f"callsheet-faults-{pid}"
    group.mkdir()
    try:
        (group / limit).write_text(str(megabytes << 20))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        with contextlib.suppress(OSError):  # who lives on goes home, so that the group can go
            for left in (group / "cgroup.procs").read_text().split():
                (name / "cgroup.procs").write_text(left)
        eventually(lambda: _removed(group))


def _removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()
