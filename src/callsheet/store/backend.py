"""What every kind of store can do: the few verbs behind `Store`, and what an object looks like in a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from callsheet.store.upload import UploadBody


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object."""

    key: str
    size: int
    modified: float
    """Unix time, by the store's own clock."""
    etag: str
    """Names this very content; `replace_if` takes it."""


class Backend(Protocol):
    """One kind of store. Keys are whole and already checked; every error is one of callsheet.errors."""

    def put(self, key: str, body: UploadBody) -> str:
        """Write an object as a whole; its etag."""

    def create(self, key: str, data: bytes) -> str | None:
        """Write an object that is not there yet; its etag, None when it is there."""

    def replace(self, key: str, data: bytes, etag: str) -> str | None:
        """Write an object that is still as it was; the new etag, None when it has changed or is gone."""

    def head(self, key: str) -> ObjectInfo:
        """What a list would say about one object."""

    def get(self, key: str) -> bytes:
        """Its whole content."""

    def stream(self, key: str) -> Iterator[bytes]:
        """Its content in order, a few chunks in memory at a time."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Some of its bytes; fewer where it ends sooner."""

    def list(self, folder: str, after: str) -> list[ObjectInfo]:
        """Every object below a folder whose key comes after `after`, in the order of their keys."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are not there do not matter."""
