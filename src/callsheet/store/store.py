"""One interface to results and checkpoints, wherever they are stored."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from callsheet.errors import UserError
from callsheet.store.address import StoreAddress, parse
from callsheet.store.backend import Backend, ObjectInfo
from callsheet.store.errors import NotFound, explain_os
from callsheet.store.file_backend import FileBackend
from callsheet.store.temp_files import TEMP_SUFFIX, sweep_folder, temporary_file, write_all
from callsheet.store.upload import Progress, UploadBody, UploadData

RETRY_SECONDS = 60.0
"""Seconds to retry a failing request to a cloud."""
MAX_KEY_BYTES = 900
"""S3 allows 1,024 bytes, including the store's own prefix."""


class Store:
    """Objects under one address, by key: `runs/7/model.safetensors`. Created by `open_store`."""

    def __init__(self, address: StoreAddress, backend: Backend, prefix: str) -> None:
        self._address = address
        self._backend = backend
        self._prefix = prefix
        """Prepended to every key; ends with a slash unless empty."""

    @property
    def url(self) -> str:
        """Its address."""
        return self._url("").rstrip("/")

    def __repr__(self) -> str:
        return f"<Store {self.url}>"

    def sub(self, prefix: str) -> Store:
        """The store under a prefix."""
        return Store(self._address, self._backend, f"{self._full(prefix)}/")

    def within(self, patience: float) -> Store:
        """The same store with another retry time, in seconds."""
        return Store(self._address, _backend(self._address, patience), self._prefix)

    def put(self, key: str, data: UploadData, *, progress: Progress | None = None) -> str:
        """Write an object atomically; return its etag. Large objects are uploaded in parts.

        `progress` is called from another thread with the bytes done and, if known, the total; it should be quick.
        """
        return self.put_body(key, UploadBody(data, progress))

    def put_body(self, key: str, body: UploadBody) -> str:
        """Like `put`, for callers that need the body's size and hash afterwards."""
        return self._backend.put(self._full(key), body)

    def put_if_absent(self, key: str, data: bytes) -> str | None:
        """Write an object unless it exists; return its etag, or None if it existed. Of several writers, one wins.

        If a response is lost, the stored content is compared with `data`: make the bytes identify their writer.
        """
        return self._backend.create(self._full(key), bytes(data))

    def replace_if(self, key: str, data: bytes, etag: str) -> str | None:
        """Overwrite an object if it still has this etag; return the new etag, or None if it changed or is gone.

        Of several writers, one wins. In a folder, a plain `put` at the same time goes unnoticed.
        """
        return self._backend.replace(self._full(key), bytes(data), etag)

    def get(self, key: str) -> bytes:
        """A whole object in memory."""
        return self._backend.get(self._full(key))

    def stream(self, key: str, *, progress: Progress | None = None) -> Iterator[bytes]:
        """An object's content in order, in chunks of a few megabytes, with only a few of them in memory."""
        total = self.head(key).size if progress else None
        done = 0
        for chunk in self._backend.stream(self._full(key)):
            yield chunk
            done += len(chunk)
            if progress:
                progress(done, total)

    def download(self, key: str, path: os.PathLike[str], *, progress: Progress | None = None) -> None:
        """Download an object to a file, which appears when it is complete."""
        save(self.stream(key, progress=progress), Path(path))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """A range of bytes; fewer at the end of the object."""
        if start < 0 or length < 0:
            raise UserError(f"invalid range: {length} bytes from {start}", fix="both must be at least 0")
        return self._backend.get_range(self._full(key), start, length) if length else b""

    def list(self, folder: str = "", *, after: str = "") -> list[ObjectInfo]:
        """All objects under a folder, sorted by key; with `after`, only later keys."""
        start = self._full(after) if after else ""
        inside = self._full(folder) if folder else self._prefix.rstrip("/")
        skip = len(self._prefix)
        return [
            ObjectInfo(entry.key[skip:], entry.size, entry.modified, entry.etag)
            for entry in self._backend.list(inside, start)
        ]

    def head(self, key: str) -> ObjectInfo:
        """Size, time and etag of one object."""
        entry = self._backend.head(self._full(key))
        return ObjectInfo(key, entry.size, entry.modified, entry.etag)

    def exists(self, key: str) -> bool:
        """Whether the object exists."""
        try:
            self.head(key)
        except NotFound:
            return False
        return True

    def delete(self, *keys: str) -> None:
        """Delete objects; missing ones are ignored."""
        if keys:
            self._backend.delete([self._full(key) for key in keys])

    def sweep(self, empty: re.Pattern[str]) -> int:
        """Remove what killed writers left in a folder, and empty folders matching `empty`; return the number of
        files.

        Files of living writers stay, however old they are. Clouds clean up by their own rules.
        """
        if isinstance(self._backend, FileBackend):
            return self._backend.sweep(self._prefix.rstrip("/"), empty)
        return 0

    def _full(self, key: str) -> str:
        if problem := _key_problem(key):
            raise UserError(
                f"{key!r} is not a valid key in {self.url}: {problem}", fix="use a key like runs/7/model.bin"
            )
        return f"{self._prefix}{key}"

    def _url(self, key: str) -> str:
        return f"{self._address.root.url}/{self._prefix}{key}"


def open_store(url: str | os.PathLike[str], *, patience: float = RETRY_SECONDS) -> Store:
    """Open the store at an address: file:///folder or a path, s3://bucket/prefix, gs://bucket/prefix,
    az://container/prefix.

    No request is sent yet, but missing credentials are reported at once.
    """
    address = parse(os.fspath(url))
    inside = address.prefix if address.bucket else ""
    return Store(address, _backend(address, patience), f"{inside}/" if inside else "")


def save(chunks: Iterable[bytes], path: Path) -> None:
    """Write chunks to a file, which appears when it is complete."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        os.stat(folder)  # the folder must exist: it is the caller's
        sweep_folder(folder)
        with temporary_file(folder) as (fd, temporary):
            for chunk in chunks:
                write_all(fd, chunk)
            os.replace(temporary, path)
    except OSError as error:
        raise explain_os(error, str(path)) from error


def _backend(address: StoreAddress, patience: float) -> Backend:
    if address.scheme == "file":
        return FileBackend(address.prefix)
    try:
        from callsheet.store.object_backend import ObjectStoreBackend
    except ImportError as error:
        if not (error.name or "").startswith("obstore"):
            raise
        raise UserError(
            f"{address.url} needs the package obstore, which is not installed",
            fix="pip install 'callsheet[rl]'",
        ) from None
    return ObjectStoreBackend(address, patience)


def _key_problem(key: str) -> str:
    if any(part in ("", ".", "..") for part in key.split("/")):
        return "it has an empty part, . or .."
    if any(part.endswith(TEMP_SUFFIX) for part in key.split("/")):
        return f"names ending with {TEMP_SUFFIX} are reserved for temporary files"
    if any(ord(letter) < 32 or letter in "\\\x7f" for letter in key):
        return "it has a backslash or a control character"
    return f"it is longer than {MAX_KEY_BYTES} bytes" if len(key.encode()) > MAX_KEY_BYTES else ""
