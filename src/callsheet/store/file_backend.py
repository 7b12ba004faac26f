"""Objects as files in a folder: atomic, on disk when a call returns, with conditional puts.

obstore has a file backend too, but it does not flush to disk and cannot replace conditionally (docs/decisions/0040).
Every write goes to a temporary file, is flushed, and then renamed or linked into place; names ending with ``~`` are
reserved for that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence

from callsheet.store.backend import ObjectInfo
from callsheet.store.errors import explain_os
from callsheet.store.temp_files import (
    TEMP_SUFFIX,
    lock_path,
    locked,
    sweep_folder,
    sync_folder,
    temporary_file,
    write_all,
)
from callsheet.store.upload import CHUNK, Chunk, UploadBody

_MAX_SWEPT = 1_000
"""Number of swept folders to remember."""
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EMLINK)


class FileBackend:
    """A local or mounted folder."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._swept: set[str] = set()

    def put(self, key: str, body: UploadBody) -> str:
        with self._translating_errors(key), self._written(key, body.chunks()) as (temporary, etag):
            os.replace(temporary, self._path(key))
        return etag

    def create(self, key: str, data: bytes) -> str | None:
        with self._translating_errors(key), self._written(key, [data]) as (temporary, etag):
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
        with self._translating_errors(key), self._written(key, [data]) as (temporary, new), locked(path):
            try:
                if _etag(os.stat(path)) != etag:
                    return None
            except FileNotFoundError:
                os.unlink(lock_path(path))
                return None
            os.replace(temporary, path)
        return new

    def head(self, key: str) -> ObjectInfo:
        with self._translating_errors(key):
            path = self._path(key)
            state = os.stat(path)
            if os.path.isdir(path):
                raise FileNotFoundError(errno.ENOENT, "a folder is not an object", path)
            return _entry(key, state)

    def get(self, key: str) -> bytes:
        with self._translating_errors(key), open(self._path(key), "rb", buffering=0) as file:
            return file.read()

    def stream(self, key: str) -> Iterator[bytes]:
        with self._translating_errors(key), open(self._path(key), "rb", buffering=0) as file:
            while chunk := file.read(CHUNK):
                yield chunk

    def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._translating_errors(key), open(self._path(key), "rb") as file:
            file.seek(start)
            return file.read(length)

    def list(self, folder: str, after: str) -> list[ObjectInfo]:
        with self._translating_errors(folder):
            entries = [entry for entry in self._walk(folder) if entry.key > after]
        return sorted(entries, key=lambda entry: entry.key)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            path = self._path(key)
            with self._translating_errors(key), contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)
            with contextlib.suppress(OSError):
                os.unlink(lock_path(path))
            self._remove_empty_folders(os.path.dirname(path))

    def sweep(self, folder: str, empty: re.Pattern[str]) -> int:
        """Remove what killed writers left under a folder, and empty folders matching `empty`; return the number of
        files."""
        count = 0
        for where, _, _ in os.walk(self._path(folder), topdown=False):
            some = sweep_folder(where)
            count += some
            if some or empty.fullmatch(os.path.basename(where)):
                self._remove_empty_folders(where)
        return count

    def _path(self, key: str) -> str:
        return os.path.join(self._root, key) if key else self._root

    @contextlib.contextmanager
    def _translating_errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise explain_os(error, f"file://{self._path(key)}") from error

    @contextlib.contextmanager
    def _written(self, key: str, chunks: Iterable[Chunk]) -> Iterator[tuple[str, str]]:
        """Write a temporary file beside the object, flush it to disk, and yield its path and etag; after the block,
        flush the folder."""
        folder = os.path.dirname(self._path(key))
        self._sweep_once(folder)
        with temporary_file(folder) as (fd, temporary):
            for chunk in chunks:
                write_all(fd, chunk)
            # The kernel's timestamps are some milliseconds coarse: two contents could share an etag.
            now = time.time_ns()
            os.utime(fd, ns=(now, now))
            os.fsync(fd)
            yield temporary, _etag(os.fstat(fd))
            sync_folder(folder)

    def _sweep_once(self, folder: str) -> None:
        """Sweep before the first write to a folder, so that a writer that is killed repeatedly leaves one file there,
        not many."""
        if folder not in self._swept:
            if len(self._swept) >= _MAX_SWEPT:
                self._swept.clear()
            self._swept.add(folder)
            sweep_folder(folder)

    def _walk(self, folder: str) -> Iterator[ObjectInfo]:
        try:
            entries = list(os.scandir(self._path(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            key = f"{folder}/{entry.name}" if folder else entry.name
            with contextlib.suppress(FileNotFoundError):  # just removed
                if entry.is_dir():
                    yield from self._walk(key)
                elif not entry.name.endswith(TEMP_SUFFIX):
                    yield _entry(key, entry.stat())

    def _remove_empty_folders(self, folder: str) -> None:
        """Object stores have no folders, so folders that became empty are removed."""
        with contextlib.suppress(OSError):
            while len(folder) > len(self._root):
                os.rmdir(folder)
                folder = os.path.dirname(folder)


def _entry(key: str, state: os.stat_result) -> ObjectInfo:
    return ObjectInfo(key, state.st_size, state.st_mtime, _etag(state))


def _etag(state: os.stat_result) -> str:
    return f"{state.st_ino:x}-{state.st_mtime_ns:x}-{state.st_size:x}"
