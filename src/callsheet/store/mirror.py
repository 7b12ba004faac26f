"""Copies a run's folder to its cloud storage: ``python -m callsheet.store.mirror FOLDER URL``.

A separate process beside the local supervisor, which imports only the standard library and must not wait for a
network. The folder stays the working copy. Commands on standard input, each answered by a JSON line:

``finish``   nothing but the status will change anymore: copy everything
``last``     copy the final status, and exit

In between, status and logs are copied periodically; a JSON line reports when that fails and when it works again. If
standard input ends without these commands, the supervisor was killed; then everything is copied too.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from callsheet.errors import CallsheetError, RetryError
from callsheet.store.errors import NotFound
from callsheet.store.store import Store, open_store

STATUS = "status.json"
FIRST_COPY_AFTER = 1.0
"""Seconds until the first copy: a run that fails at once is copied only once."""
STATUS_EVERY = 5.0
LOGS_EVERY = 60.0
PARALLEL = 4
RETRY_SECONDS = 5.0
"""Seconds to retry a failing request while the run continues: it is tried again later."""
FINAL_RETRY_SECONDS = 60.0
"""Seconds to retry at the end, when there is no later."""
FINAL_STATUS_TIMEOUT = 10.0
"""Seconds that the guard of a killed supervisor has to write the final status."""

Stamp = tuple[int, int, int]


class Mirror:
    """Copies the files that changed since they were last copied."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder = folder
        self._store = store
        self._copied: dict[str, Stamp] = {}

    def copy_status(self) -> None:
        """Copy the status, if it changed."""
        self._copy([key for key in self._changed() if key == STATUS])

    def copy_all(self) -> None:
        """Copy every changed file; the status last, so that it describes what is there."""
        changed = self._changed()
        self._copy([key for key in changed if key != STATUS])
        self._copy([key for key in changed if key == STATUS])

    def _changed(self) -> list[str]:
        return [key for key, stamp in self._files() if self._copied.get(key) != stamp]

    def _files(self) -> Iterator[tuple[str, Stamp]]:
        """Files for people; names with a leading dot are internal and may be secret."""
        for where, folders, names in os.walk(self._folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = os.path.join(where, name)
                if not name.startswith(".") and (stamp := _stamp(path)):
                    yield os.path.relpath(path, self._folder), stamp

    def _copy(self, keys: list[str]) -> None:
        pool = ThreadPoolExecutor(PARALLEL)
        try:
            for _ in pool.map(self._copy_one, keys):
                pass
        finally:
            pool.shutdown(cancel_futures=True)  # after one failure the others would fail too

    def _copy_one(self, key: str) -> None:
        path = self._folder / key
        stamp = _stamp(path)
        if stamp is None:
            return
        try:
            self._store.put(key, path)
        except NotFound:
            return  # a log file that was just rotated: it has another name now
        self._copied[key] = stamp


def _stamp(path: str | Path) -> Stamp | None:
    try:
        state = os.stat(path)
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def retry_for(work: Callable[[], None], seconds: float) -> str:
    """Call `work`, retrying while the server is unreachable; return the error message, or an empty string."""
    limit = time.monotonic() + seconds
    while True:
        try:
            work()
        except RetryError as error:
            if time.monotonic() > limit:
                return error.message
        except CallsheetError as error:
            return error.message
        else:
            return ""


class MirrorProcess:
    """Executes the supervisor's commands, and copies in between."""

    def __init__(self, mirror: Mirror, folder: Path) -> None:
        self._mirror = mirror
        self._folder = folder
        self._problem = ""

    def run(self) -> None:
        """Run until `last`, or until standard input is closed."""
        next_logs = time.monotonic()
        pause = FIRST_COPY_AFTER
        while True:
            command = _read_command(pause)
            pause = STATUS_EVERY
            if command == "finish":
                self._report(retry_for(self._mirror.copy_all, FINAL_RETRY_SECONDS), answer=True)
            elif command == "last":
                self._report(retry_for(self._mirror.copy_status, FINAL_RETRY_SECONDS), answer=True)
                return
            elif command is None:
                self._wait_for_final_status()
                retry_for(self._mirror.copy_all, FINAL_RETRY_SECONDS)
                return
            elif time.monotonic() >= next_logs:
                self._report(retry_for(self._mirror.copy_all, 0.0))
                next_logs = time.monotonic() + LOGS_EVERY
            else:
                self._report(retry_for(self._mirror.copy_status, 0.0))

    def _report(self, problem: str, *, answer: bool = False) -> None:
        if answer or problem != self._problem:
            self._problem = problem
            print(json.dumps({"answer": answer, "problem": problem}), flush=True)

    def _wait_for_final_status(self) -> None:
        limit = time.monotonic() + FINAL_STATUS_TIMEOUT
        while time.monotonic() < limit:
            try:
                if json.loads((self._folder / STATUS).read_bytes())["finished"]:
                    return
            except (OSError, ValueError, KeyError):
                pass
            time.sleep(0.1)  # written by another process, which does not notify us


def _read_command(seconds: float) -> str | None:
    """The next command within so many seconds; empty if there is none, None at the end of standard input."""
    if not select.select([0], [], [], seconds)[0]:
        return ""
    line = b""
    while not line.endswith(b"\n"):
        letter = os.read(0, 1)
        if not letter:
            return None
        line += letter
    return line.decode().strip()


def main(folder: str, url: str) -> None:
    """Copy until told to stop."""
    store = open_store(url, patience=RETRY_SECONDS)
    MirrorProcess(Mirror(Path(folder), store), Path(folder)).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
