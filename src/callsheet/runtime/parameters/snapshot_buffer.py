"""The published snapshots: the latest, and those that readers still use; a fixed number of them.

Two threads use the buffer, the publisher's and the server's. A snapshot that is lent is not overwritten until it is
returned. So few are lent at a time that one is always free to write into: publishing never waits. When the limit is
reached, readers share the lent ones; one that is held for too long is left to its readers, and gets new memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from callsheet.runtime.link.blocks import Block
from callsheet.runtime.link.peer import FIRST_SHARED_BLOCK
from callsheet.runtime.link.protocol import Header
from callsheet.runtime.parameters import protocol
from callsheet.runtime.parameters.protocol import Version
from callsheet.runtime.schema import ALIGNMENT, Schema

MAX_LENT = 4
SHARE_SECONDS = 0.1
"""Seconds that a snapshot is still handed out although there is a newer one."""


@dataclass(eq=False, slots=True)
class BufferedSnapshot:
    """A snapshot in memory that readers can map."""

    block: Block
    version: Version = field(default_factory=Version)
    header: Header = field(default_factory=lambda: Header(protocol.SNAPSHOT))
    length: int = 0
    readers: int = 0
    lent_since: float = 0.0
    schema: Schema | None = None
    views: dict[str, np.ndarray] = field(default_factory=dict)

    def write(self, version: Version, schema: Schema, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the arrays, once."""
        if self.schema is not schema:
            start = arrays_offset(schema)
            layout = schema.layout(1)
            self.length = start + layout.nbytes
            self.block.view[: len(schema.encoded)] = schema.encoded
            views = layout.views(self.block.view[start : self.length])
            self.views = {name: view.reshape(view.shape[1:]) for name, view in views.items()}
            self.schema = schema
        for name, view in self.views.items():
            np.copyto(view, arrays[name])
        self.version = version
        self.header = Header(
            protocol.SNAPSHOT,
            schema=schema.hash,
            sequence=len(schema.encoded),
            version=version.number,
            body=protocol.encode(version),
        )

    def close(self) -> None:
        """Free the memory, when the last reader has unmapped it."""
        self.views = {}
        self.schema = None
        self.block.close()


def arrays_offset(schema: Schema) -> int:
    """Where the arrays start in a snapshot, after the schema."""
    return -(-len(schema.encoded) // ALIGNMENT) * ALIGNMENT


class SnapshotBuffer:
    """All snapshots of a server."""

    def __init__(self, max_lent: int = MAX_LENT) -> None:
        self.max_lent = max_lent
        self.retired = 0
        self.latest = Version()
        """The published version."""
        self._lock = threading.Lock()
        self._all: list[BufferedSnapshot] = []
        self._spare: list[BufferedSnapshot] = []
        self._latest: BufferedSnapshot | None = None

    @property
    def memory(self) -> int:
        """Bytes of all snapshots."""
        with self._lock:
            return sum(stored.block.size for stored in self._all)

    @property
    def lent(self) -> int:
        """Number of snapshots in use by readers."""
        return sum(stored.readers > 0 for stored in list(self._all))

    def acquire(self, size: int) -> BufferedSnapshot:
        """A snapshot to write into: not the latest, and not in use."""
        with self._lock:
            if self._spare:
                stored = self._spare.pop()
                if stored.block.size >= size:
                    return stored
                self._forget(stored)
            taken = {stored.block.index for stored in self._all}
            stored = BufferedSnapshot(
                Block(next(n for n in range(FIRST_SHARED_BLOCK, 2 * FIRST_SHARED_BLOCK) if n not in taken))
            )
            self._all.append(stored)
        stored.block.grow(size)
        return stored

    def publish(self, stored: BufferedSnapshot) -> None:
        """Make this snapshot the latest."""
        with self._lock:
            before, self._latest = self._latest, stored
            self.latest = stored.version
            if before is not None and not before.readers:
                self._spare.append(before)

    def discard(self, stored: BufferedSnapshot) -> None:
        """Return an acquired snapshot that was not written."""
        with self._lock:
            self._spare.append(stored)

    def lend(self, wanted: Version) -> BufferedSnapshot | None:
        """Lend the latest snapshot if it is newer than `wanted`. If too many older ones are lent, lend the newest of
        those; None if even that is not newer: ask again soon, or when one was returned."""
        with self._lock:
            latest = self._latest
            if latest is None or not latest.version.newer_than(wanted):
                return None
            if not latest.readers:
                now = time.monotonic()
                lent = [stored for stored in self._all if stored.readers]
                if len(lent) >= self.max_lent and not self._retire(lent, now - SHARE_SECONDS):
                    latest = max(lent, key=lambda stored: stored.version.number)
                    if not latest.version.newer_than(wanted):
                        return None
                else:
                    latest.lent_since = now
            latest.readers += 1
            return latest

    def _retire(self, lent: list[BufferedSnapshot], before: float) -> bool:
        """Leave the snapshot that was lent first to its readers, if that was before `before`."""
        oldest = min(lent, key=lambda stored: stored.lent_since)
        if oldest.lent_since > before:
            return False
        self._forget(oldest)
        self.retired += 1
        return True

    def give_back(self, stored: BufferedSnapshot) -> None:
        """A reader has released it."""
        with self._lock:
            stored.readers -= 1
            if not stored.readers and stored is not self._latest and stored in self._all:
                self._spare.append(stored)

    def _forget(self, stored: BufferedSnapshot) -> None:
        self._all.remove(stored)
        stored.close()

    def close(self) -> None:
        """Free all memory."""
        with self._lock:
            for stored in self._all:
                stored.close()
            self._all.clear()
            self._spare.clear()
            self._latest = None
