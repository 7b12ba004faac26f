"""Serves the run's curves with TensorBoard; where the results lie in a cloud, its files are copied here as they grow."""

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
from callsheet.metrics import Outlets
from callsheet.metrics.targets import split_address
from callsheet.rl.settings import Training
from callsheet.runtime import Context
from callsheet.store import Store, open_store

ENDPOINT = "tensorboard"
EVERY = 5
"""Seconds between two looks for what is new."""
_FILES = "tensorboard"
_COPIES = "callsheet-tensorboard-"
_TRIES = 5

_log = logging.getLogger(__name__)


def run(context: Context, training: Training) -> None:
    """Serve until told to stop."""
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError("TensorBoard is not installed", fix="pip install 'callsheet[tensorboard]'")
    host, port = split_address(context.bind(ENDPOINT))
    outlets = Outlets.from_env()
    with copies_folder() as folder:
        copies = Copies(open_store(outlets.remote).sub(_FILES), Path(folder)) if outlets.remote else None
        logs = folder if copies else f"{outlets.folder}/{_FILES}"
        command = [
            sys.executable,
            "-m",
            "tensorboard.main",
            "--logdir",
            logs,
            "--reload_interval",
            str(EVERY),
        ]
        with subprocess.Popen([*command, "--host", host, "--port", str(port)]) as server:
            try:
                _log.info("TensorBoard for %s: http://%s:%s", training.env, host, port)
                while server.poll() is None:
                    if copies:
                        copies.renew()
                    context.sleep(EVERY)
            finally:
                server.terminate()
    raise CallsheetError(f"TensorBoard ended with {server.returncode}", fix="its own words are above")


@contextmanager
def copies_folder() -> Iterator[str]:
    """A folder for the copies. A kill leaves it behind; the next of us removes those that nobody holds any more."""
    for left in Path(tempfile.gettempdir()).glob(f"{_COPIES}*"):
        if (fd := _hold(str(left), fcntl.LOCK_EX | fcntl.LOCK_NB)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(fd)
    for _ in range(_TRIES):
        folder = tempfile.mkdtemp(prefix=_COPIES)
        if (fd := _hold(folder, fcntl.LOCK_EX)) is not None:
            break
    else:
        raise CallsheetError(f"the folder {folder} cannot be kept", fix="set TMPDIR to another disk")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(fd)


def _hold(folder: str, how: int) -> int | None:
    """A lock on a folder of ours, until it is closed or we end; None when somebody else has it or it is gone."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, how)
        now = os.stat(folder)
        if now.st_uid == os.getuid() and os.path.samestat(now, os.fstat(fd)):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


class Copies:
    """Files of events in a store, and here what they were when they were last looked at."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._seen: dict[str, str] = {}

    def renew(self) -> None:
        """Take over what is new. A store that does not answer is asked again the next time."""
        try:
            for entry in self._store.list():
                if self._seen.get(entry.key) != entry.etag:
                    self._take(entry.key)
                    self._seen[entry.key] = entry.etag
        except RetryError as error:
            _log.warning("the curves are not renewed for now: %s", error)

    def _take(self, key: str) -> None:
        data = self._store.get(key)  # refuses keys that lead elsewhere
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        # A file of events only grows: who reads it goes on where it was.
        with path.open("ab") as file:
            file.write(data[file.tell() :])
