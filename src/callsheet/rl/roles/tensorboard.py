"""Serves the run's metrics with TensorBoard. Event files in a remote store are copied here as they grow."""

from __future__ import annotations

import fcntl
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from callsheet.errors import CallsheetError, RetryError, UserError
from callsheet.metrics import ExportTargets
from callsheet.metrics.targets import split_address
from callsheet.rl import endpoints
from callsheet.rl.settings import Training
from callsheet.runtime import Context
from callsheet.store import Store, open_store

INTERVAL = 5
"""Seconds between two checks for new events."""
_FILES = "tensorboard"
_PREFIX = "callsheet-tensorboard-"
_TRIES = 5

_log = logging.getLogger(__name__)


def run(context: Context, training: Training) -> None:
    """Serve until stopped."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError("TensorBoard is not installed", fix="pip install 'callsheet[tensorboard]'")
    host, port = split_address(context.bind(endpoints.TENSORBOARD))
    targets = ExportTargets.from_env()
    with copies_folder() as folder:
        copies = (
            EventFileCopies(open_store(targets.remote).sub(_FILES), Path(folder)) if targets.remote else None
        )
        logs = folder if copies else f"{targets.folder}/{_FILES}"
        command = [
            sys.executable,
            "-m",
            "tensorboard.main",
            "--logdir",
            logs,
            "--reload_interval",
            str(INTERVAL),
        ]
        with subprocess.Popen([*command, "--host", host, "--port", str(port)]) as server:
            try:
                _log.info("TensorBoard for %s: http://%s:%s", training.env, host, port)
                while server.poll() is None:
                    if copies:
                        copies.update()
                    context.sleep(INTERVAL)
            finally:
                server.terminate()
    raise CallsheetError(f"TensorBoard ended with {server.returncode}", fix="see its output above")


@contextmanager
def copies_folder() -> Iterator[str]:
    """A temporary folder for the copies. If a killed process left its folder behind, the next one removes it."""
    for leftover in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if (fd := _lock(str(leftover), fcntl.LOCK_EX | fcntl.LOCK_NB)) is not None:
            shutil.rmtree(leftover, ignore_errors=True)
            os.close(fd)
    for _ in range(_TRIES):
        folder = tempfile.mkdtemp(prefix=_PREFIX)
        if (fd := _lock(folder, fcntl.LOCK_EX)) is not None:
            break
    else:
        raise CallsheetError(f"cannot lock the folder {folder}", fix="set TMPDIR to another disk")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(fd)


def _lock(folder: str, how: int) -> int | None:
    """Lock a folder until the descriptor is closed or we end; None if someone else holds it or it is gone."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, how)
        current = os.stat(folder)
        if current.st_uid == os.getuid() and os.path.samestat(current, os.fstat(fd)):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


class EventFileCopies:
    """Local copies of the event files in a store."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._seen: dict[str, str] = {}

    def update(self) -> None:
        """Copy what is new. If the store does not answer, try again next time."""
        try:
            for entry in self._store.list():
                if self._seen.get(entry.key) != entry.etag:
                    self._copy(entry.key)
                    self._seen[entry.key] = entry.etag
        except RetryError as error:
            _log.warning("cannot update the curves for now: %s", error)

    def _copy(self, key: str) -> None:
        data = self._store.get(key)  # rejects keys that lead elsewhere
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        # Event files only grow, and TensorBoard continues reading where it was.
        with path.open("ab") as file:
            file.write(data[file.tell() :])
