"""The operations every kind of store implements behind `Store`, and the metadata of an object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from callsheet.store.upload import UploadBody


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Metadata of one object."""

    key: str
    size: int
    modified: float
    """Unix time, by the store's clock."""
    etag: str
    """Identifies this exact content; pass it to `replace_if`."""


class Backend(Protocol):
    """One kind of store. Keys are complete and validated; every error is one of callsheet.errors."""

    def put(self, key: str, body: UploadBody) -> str:
        """Write an object atomically; return its etag."""

    def create(self, key: str, data: bytes) -> str | None:
        """Write an object that does not exist yet; return its etag, or None if it exists."""

    def replace(self, key: str, data: bytes, etag: str) -> str | None:
        """Overwrite an object if its etag still matches; return the new etag, or None if it changed or is gone."""

    def head(self, key: str) -> ObjectInfo:
        """The metadata of one object."""

    def get(self, key: str) -> bytes:
        """The whole content."""

    def stream(self, key: str) -> Iterator[bytes]:
        """The content in order, with only a few chunks in memory."""

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """A range of bytes; fewer at the end of the object."""

    def list(self, folder: str, after: str) -> list[ObjectInfo]:
        """All objects under a folder whose key comes after `after`, sorted by key."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
