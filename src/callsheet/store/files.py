"""Objects as files below a folder: whole or not at all, on disk when a call returns, conditional puts included.

obstore has a backend for files too, but it does not wait for the disk and cannot replace conditionally
(docs/decisions/0040). Every write goes to a temporary file first, is flushed to the disk, and is then renamed or
linked into place; names that end with ``~`` are ours.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence

from callsheet.store.base import Entry
from callsheet.store.body import CHUNK, Body, Chunk
from callsheet.store.failures import explain_os

OURS = "~"
_TRIES = 5
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EMLINK)


class Files:
    """A folder of this machine, or one that is mounted on it."""

    def __init__(self, root: str) -> None:
        self._root = root

    def put(self, key: str, body: Body) -> str:
        with self._explained(key), self._written(key, body.chunks()) as (temporary, etag):
            os.replace(temporary, self._path(key))
        return etag

    def create(self, key: str, data: bytes) -> str | None:
        with self._explained(key), self._written(key, [data]) as (temporary, etag):
            try:
                os.link(temporary, self._path(key))
            except FileExistsError:
                return None
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise OSError(errno.EOPNOTSUPP, "no hard links") from error
                raise
        return etag

    def replace(self, key: str, data: bytes, etag: str) -> str | None:
        path = self._path(key)
        if not os.path.exists(path):
            return None
        with self._explained(key), self._written(key, [data]) as (temporary, new), _locked(path):
            try:
                if _etag(os.stat(path)) != etag:
                    return None
            except FileNotFoundError:
                return None
            os.replace(temporary, path)
        return new

    def head(self, key: str) -> Entry:
        with self._explained(key):
            path = self._path(key)
            state = os.stat(path)
            if os.path.isdir(path):
                raise FileNotFoundError(errno.ENOENT, "a folder is no object", path)
            return _entry(key, state)

    def get(self, key: str) -> bytes:
        with self._explained(key), open(self._path(key), "rb", buffering=0) as file:
            return file.read()

    def stream(self, key: str) -> Iterator[bytes]:
        with self._explained(key), open(self._path(key), "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._explained(key), open(self._path(key), "rb") as file:
            file.seek(start)
            return file.read(length)

    def list(self, folder: str, after: str) -> list[Entry]:
        with self._explained(folder):
            found = [entry for entry in self._walk(folder) if entry.key > after]
        return sorted(found, key=lambda entry: entry.key)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            path = self._path(key)
            with self._explained(key), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)
            with contextlib.suppress(OSError):
                os.unlink(_lock_path(path))
            self._remove_empty_folders(os.path.dirname(path))

    def sweep(self, folder: str, older_than: float) -> int:
        """Remove temporary files that killed writers left below a folder; how many."""
        limit = time.time() - older_than
        count = 0
        for where, _, names in os.walk(self._path(folder)):
            for name in names:
                with contextlib.suppress(OSError):
                    path = os.path.join(where, name)
                    if name.endswith(f".tmp{OURS}") and os.stat(path).st_mtime < limit:
                        os.unlink(path)
                        count += 1
        return count

    def _path(self, key: str) -> str:
        return os.path.join(self._root, key) if key else self._root

    @contextlib.contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise explain_os(error, f"file://{self._path(key)}") from error

    @contextlib.contextmanager
    def _written(self, key: str, chunks: Iterable[Chunk]) -> Iterator[tuple[str, str]]:
        """A temporary file beside the object, safely on the disk, and its etag; it becomes durable in its place."""
        folder = os.path.dirname(self._path(key))
        temporary = os.path.join(folder, f".{secrets.token_hex(8)}.tmp{OURS}")
        fd = _open_new(temporary)
        try:
            try:
                for chunk in chunks:
                    _write_all(fd, chunk)
                # The kernel's own stamps are some milliseconds coarse: two contents could share one etag.
                now = time.time_ns()
                os.utime(fd, ns=(now, now))
                os.fsync(fd)
                etag = _etag(os.fstat(fd))
            finally:
                os.close(fd)
            yield temporary, etag
            _sync_folder(folder)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def _walk(self, folder: str) -> Iterator[Entry]:
        try:
            entries = list(os.scandir(self._path(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            key = f"{folder}/{entry.name}" if folder else entry.name
            with contextlib.suppress(FileNotFoundError):  # removed at this moment
                if entry.is_dir():
                    yield from self._walk(key)
                elif not entry.name.endswith(OURS):
                    yield _entry(key, entry.stat())

    def _remove_empty_folders(self, folder: str) -> None:
        """Object stores have no folders: those that only held what was removed go too."""
        with contextlib.suppress(OSError):
            while len(folder) > len(self._root):
                os.rmdir(folder)
                folder = os.path.dirname(folder)


def _entry(key: str, state: os.stat_result) -> Entry:
    return Entry(key, state.st_size, state.st_mtime, _etag(state))


def _etag(state: os.stat_result) -> str:
    return f"{state.st_ino:x}-{state.st_mtime_ns:x}-{state.st_size:x}"


def _open_new(path: str) -> int:
    """A new file, in a folder that somebody may remove as empty at this moment."""
    for _ in range(_TRIES):
        _make_folders(os.path.dirname(path))
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    raise FileNotFoundError(errno.ENOENT, "the folder is removed again and again", path)


def _make_folders(folder: str) -> None:
    """Make a folder and those above it, each one durable."""
    missing: list[str] = []
    while not os.path.isdir(folder):
        missing.append(folder)
        above = os.path.dirname(folder)
        if above == folder:
            break
        folder = above
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            os.mkdir(path)
            _sync_folder(os.path.dirname(path))
        if not os.path.isdir(path) and os.path.exists(path):
            raise NotADirectoryError(errno.ENOTDIR, "a file stands where a folder should", path)


def _sync_folder(folder: str) -> None:
    """Make the names in a folder durable; some network disks cannot be asked, and do it by themselves."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def _write_all(fd: int, chunk: Chunk) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(fd, view) :]


def _lock_path(path: str) -> str:
    folder, name = os.path.split(path)
    short = hashlib.sha256(name.encode()).hexdigest()[:16]
    return os.path.join(folder, f".{short}.lock{OURS}")


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """One conditional replacer of this object at a time, on every machine that sees the disk."""
    lock = _lock_path(path)
    while True:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            try:
                current = os.stat(lock)
            except FileNotFoundError:
                continue  # the object was deleted, and its lock with it
            if os.path.samestat(current, os.fstat(fd)):
                yield
                return
        finally:
            os.close(fd)
