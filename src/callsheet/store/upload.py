"""What is put, whatever form it comes in: chunks that can be produced again when a transfer has to start over."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from callsheet.store.errors import explain_os

CHUNK = 8 * 1024 * 1024
"""Bytes moved at a time; what is larger travels in several requests."""

Chunk = bytes | memoryview
UploadData = bytes | bytearray | memoryview | os.PathLike[str] | Iterable[bytes]
"""Bytes, anything with a contiguous buffer, the path of a file, or an iterator of bytes."""
Progress = Callable[[int, int | None], None]
"""Called with the bytes done and, where known, the bytes in all."""


class UploadCancelled(Exception):
    """Nobody wants the transfer any more."""


class UploadBody:
    """Bytes on their way up, with their number and SHA-256 once they have been read."""

    def __init__(self, data: UploadData, progress: Progress | None = None, *, hashed: bool = False) -> None:
        self.size: int | None = None
        """Bytes in all, where known before they are read."""
        self.single_use = False
        """An iterator can be read only once: a transfer of it cannot start over."""
        self.done = 0
        self.sha256 = ""
        self._progress = progress
        self._hashed = hashed
        self._cancelled = False
        self._source = self._open(data)

    def _open(self, data: Any) -> Callable[[], Iterator[Chunk]]:
        if isinstance(data, str):
            raise TypeError("text can be neither bytes nor a path: encode it, or wrap it in pathlib.Path")
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
        """From the beginning, none longer than CHUNK."""
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
        """Let the transfer end with its next chunk: nobody wants it any more."""
        self._cancelled = True

    def read(self) -> bytes:
        """All of it, for what is known to be small."""
        return b"".join(self.chunks())


def _file_chunks(path: Path) -> Iterator[Chunk]:
    """The file as long as it is now: one that grows meanwhile, as a log does, ends there."""
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
