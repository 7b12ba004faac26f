"""The body of an upload, from whatever the caller passes: chunks that can be read again when a transfer restarts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from callsheet.store.errors import explain_os

CHUNK = 8 * 1024 * 1024
"""Bytes per chunk; larger bodies are sent in several requests."""

Chunk = bytes | memoryview
UploadData = bytes | bytearray | memoryview | os.PathLike[str] | Iterable[bytes]
"""Bytes, anything with a contiguous buffer, the path of a file, or an iterator of bytes."""
Progress = Callable[[int, int | None], None]
"""Called with the bytes done and, if known, the total."""


class UploadCancelled(Exception):
    """The upload was cancelled."""


class UploadBody:
    """Bytes to upload, with their count and SHA-256 once they have been read."""

    def __init__(self, data: UploadData, progress: Progress | None = None, *, hashed: bool = False) -> None:
        self.size: int | None = None
        """Total bytes, if known in advance."""
        self.single_use = False
        """An iterator can be read only once, so its transfer cannot restart."""
        self.done = 0
        self.sha256 = ""
        self._progress = progress
        self._hashed = hashed
        self._cancelled = False
        self._source = self._open(data)

    def _open(self, data: Any) -> Callable[[], Iterator[Chunk]]:
        if isinstance(data, str):
            raise TypeError("pass bytes or a pathlib.Path, not a string")
        if isinstance(data, os.PathLike):
            path = Path(data)
            try:
                self.size = path.stat().st_size
            except OSError as error:
                raise explain_os(error, str(path)) from error
            return lambda: _file_chunks(path)
        try:
            view = memoryview(data).cast("B")
        except TypeError:
            self.single_use = iter(data) is data
            return lambda: _iterator_chunks(iter(data))
        self.size = view.nbytes
        return lambda: (view[at : at + CHUNK] for at in range(0, view.nbytes, CHUNK))

    def chunks(self) -> Iterator[Chunk]:
        """The chunks from the start, none longer than CHUNK."""
        self.done = 0
        digest = hashlib.sha256()
        for chunk in self._source():
            if self._cancelled:
                raise UploadCancelled
            if self._hashed:
                digest.update(chunk)
            yield chunk
            self.done += len(chunk)
            if self._progress:
                self._progress(self.done, self.size)
        self.sha256 = digest.hexdigest()

    def cancel(self) -> None:
        """Stop the transfer at its next chunk."""
        self._cancelled = True

    def read(self) -> bytes:
        """All of it, for small bodies."""
        return b"".join(self.chunks())


def _file_chunks(path: Path) -> Iterator[Chunk]:
    """The file at its current length: if it grows meanwhile, as a log does, the rest is left out."""
    try:
        with path.open("rb", buffering=0) as file:
            left = os.fstat(file.fileno()).st_size
            while left and (chunk := file.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk
    except OSError as error:
        raise explain_os(error, str(path)) from error


def _iterator_chunks(chunks: Iterator[bytes]) -> Iterator[Chunk]:
    for chunk in chunks:
        view = memoryview(chunk).cast("B")
        for at in range(0, view.nbytes, CHUNK):
            yield view[at : at + CHUNK]
