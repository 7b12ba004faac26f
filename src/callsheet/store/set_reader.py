"""Reads sets: finds the newest complete one, and verifies parts."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from callsheet.errors import RetryError, UserError
from callsheet.store import manifest
from callsheet.store.errors import BadSet, NotFound
from callsheet.store.manifest import ManifestRecord, PartInfo
from callsheet.store.store import Store, save
from callsheet.store.upload import Progress

log = logging.getLogger("callsheet.store")


class StoredSet:
    """A complete set. Its parts are verified against their hashes on every read."""

    def __init__(self, store: Store, record: ManifestRecord) -> None:
        self._store = store
        self.record = record

    @property
    def name(self) -> str:
        """The name its writer gave it."""
        return self.record.name

    @property
    def number(self) -> int:
        """Its number; later sets have larger ones."""
        return self.record.number

    @property
    def info(self) -> Mapping[str, Any]:
        """The info its writer stored."""
        return self.record.info

    @cached_property
    def parts(self) -> Mapping[str, PartInfo]:
        """Its parts by name."""
        return {part.name: part for part in self.record.parts}

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.record.parts)

    def __repr__(self) -> str:
        return (
            f"<StoredSet {self.name!r}, number {self.number}, {len(self.parts)} parts, {self.size:,} bytes>"
        )

    def read(self, part: str) -> bytes:
        """Read and verify a part."""
        return b"".join(self._checked(part))

    def download(self, part: str, path: Path, *, progress: Progress | None = None) -> None:
        """Download a part to a file, which appears once verified."""
        save(self._checked(part, progress), path)

    def verify(self) -> None:
        """Read and verify every part; `BadSet` for the first damaged one."""
        for part in self.parts:
            for _ in self._checked(part):
                pass

    def check(self) -> None:
        """Check by listing that every part exists with the right size."""
        sizes = {entry.key: entry.size for entry in self._store.list(self.record.folder)}
        for part in self.record.parts:
            size = sizes.get(self._key(part.name))
            if size != part.size:
                actual = "missing" if size is None else f"{size:,} bytes long"
                raise self._bad(f"its part {part.name!r} of {part.size:,} bytes is {actual}")

    def _checked(self, name: str, progress: Progress | None = None) -> Iterator[bytes]:
        part = self.parts.get(name)
        if part is None:
            raise UserError(
                f"the set {self.name!r} has no part {name!r}", fix=f"it has {', '.join(self.parts)}"
            )
        digest = hashlib.sha256()
        done = 0
        try:
            for chunk in self._store.stream(self._key(name)):
                digest.update(chunk)
                yield chunk
                done += len(chunk)
                if progress:
                    progress(done, part.size)
        except NotFound:
            if not self._store.exists(manifest.key(self.number)):
                raise RetryError(
                    f"the set {self.name!r} in {self._store.url} was removed while it was being read",
                    fix="call latest() again",
                ) from None
            raise self._bad(f"its part {name!r} is missing") from None
        if digest.hexdigest() != part.sha256:
            raise self._bad(f"its part {name!r} is damaged: {done:,} bytes with another hash")

    def _bad(self, why: str) -> BadSet:
        return BadSet(
            f"the set {self.name!r} in {self._store.url} is damaged: {why}",
            fix=f"use an earlier one: latest(store, before={self.number})",
        )

    def _key(self, part: str) -> str:
        return f"{self.record.folder}/{part}"


def latest(store: Store, *, before: int | None = None, skip_bad: bool = False) -> StoredSet | None:
    """The newest set with an intact manifest and all parts in their right size; None if there is none.

    A damaged one raises `BadSet`; with `skip_bad` it is logged and the previous one is used. `before` is a set's
    number.
    """
    return manifest.with_stable_listing(lambda: _latest(store, before, skip_bad))


def _latest(store: Store, before: int | None, skip_bad: bool) -> StoredSet | None:
    for record in manifest.walk(store, before=before):
        try:
            if isinstance(record, BadSet):
                raise record
            if record.kind == "claim":
                continue
            stored_set = StoredSet(store, record)
            stored_set.check()
        except BadSet as bad:
            if isinstance(record, ManifestRecord):
                store.head(manifest.key(record.number))  # NotFound: it was removed together with its parts
            if not skip_bad:
                raise
            log.warning("%s; looking for an earlier one", bad.message)
        else:
            return stored_set
    return None


def all_sets(store: Store) -> list[StoredSet]:
    """All valid sets, newest first, without those with a damaged manifest; parts are not checked."""
    records = manifest.all_records(store)
    return [StoredSet(store, r) for r in records if isinstance(r, ManifestRecord) and r.kind == "set"]
