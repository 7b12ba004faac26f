"""The layout of a run's folder, and atomic writes.

What people look for is at the top: `experiment.yaml`, `status.json`, `logs/`. What only Callsheet and the run's own
processes need is in `.callsheet/`, which only the owner can enter.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


class Layout:
    """Paths inside a run's folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.private = self.folder / ".callsheet"
        self.experiment = str(self.folder / "experiment.yaml")
        self.status = str(self.folder / "status.json")
        self.logs = str(self.folder / "logs")
        self.plan = str(self.private / "plan.json")
        self.socket = str(self.private / "control.sock")
        self.addresses = str(self.private / "addresses.json")
        self.keys = str(self.private / "keys")
        self.files = str(self.private / "files")
        self.volumes = str(self.private / "volumes")
        self.supervisor_log = str(self.private / "supervisor.log")


def limit_log(path: str, most: int) -> None:
    """Rotate our own output when the file has grown to this size; one older file is kept."""
    with contextlib.suppress(OSError):
        now = os.fstat(2)
        if now.st_size < most or not os.path.samestat(now, os.stat(path)):
            return
        os.replace(path, f"{path}.1")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)


def write_atomically(path: str, text: str) -> bool:
    """Replace a file atomically. False if that fails: the old content stays, and the next try may succeed."""
    temporary = f"{path}.{os.getpid()}"  # a guard and a client may write the same at the same moment
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    return True
