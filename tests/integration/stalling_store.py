"""A store that pauses its user before a chosen call, like SIGSTOP would, until it is released."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from callsheet.store.address import parse
from callsheet.store.backend import ObjectInfo
from callsheet.store.file_backend import FileBackend
from callsheet.store.store import Store
from callsheet.store.upload import UploadBody


class Stalls(FileBackend):
    """Counts the calls from `arm` on, calls `stop` before the one with that number and all later ones."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self._url = folder.as_uri()
        self._lock = threading.Lock()
        self._left: int | None = None
        self.stop: Callable[[str], None] = self._wait
        self.stalled = threading.Event()
        """Whether that call was reached."""
        self.go_on = threading.Event()

    @property
    def store(self) -> Store:
        return Store(parse(self._url), self, "")

    def arm(self, call: int) -> None:
        """Stop before the call with this number, from 0."""
        self._left = call

    def _wait(self, call: str) -> None:
        self.stalled.set()
        assert self.go_on.wait(60), call

    def _before(self, call: str) -> None:
        with self._lock:
            if self._left is None:
                return
            self._left -= 1
            late = self._left < 0
        if late and not self.go_on.is_set():
            self.stop(call)

    def put(self, key: str, body: UploadBody) -> str:
        self._before(f"put {key}")
        return super().put(key, body)

    def create(self, key: str, data: bytes) -> str | None:
        self._before(f"create {key}")
        return super().create(key, data)

    def replace(self, key: str, data: bytes, etag: str) -> str | None:
        self._before(f"replace {key}")
        return super().replace(key, data, etag)

    def head(self, key: str) -> ObjectInfo:
        self._before(f"head {key}")
        return super().head(key)

    def get(self, key: str) -> bytes:
        self._before(f"get {key}")
        return super().get(key)

    def stream(self, key: str) -> Iterator[bytes]:
        self._before(f"stream {key}")
        return super().stream(key)

    def list(self, folder: str, after: str) -> list[ObjectInfo]:
        self._before(f"list {folder}")
        return super().list(folder, after)

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:  # one may be stopped between two of them
            self._before(f"delete {key}")
            super().delete([key])
