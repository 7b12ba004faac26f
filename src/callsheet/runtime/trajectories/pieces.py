"""Frames on their way into a batch: which of their items are new, how far they are copied, and what that adds up to."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.messages import BadMessage
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream.lane import ITEMS
from callsheet.runtime.stream.ledger import LARGEST, Track
from callsheet.runtime.stream.packing import MOST_ITEMS
from callsheet.runtime.trajectories.batches import Batch

if TYPE_CHECKING:
    from callsheet.metrics import Histogram

PATTERN: Final = "trajectories"
"""What writers and readers tell each other that they want."""
WINDOW: Final = 8
"""Frames of one writer that may be on their way: enough to keep a network busy, few enough to stay fresh."""
_RAMP = np.arange(MOST_ITEMS, dtype=np.int64)
_BUCKETS = 64


class Piece:
    """Items of one frame that are to be copied."""

    __slots__ = (
        "arrays",
        "at",
        "count",
        "frame",
        "missing",
        "sequence",
        "skipped",
        "track",
        "version",
        "writer",
    )

    def __init__(
        self,
        arrays: list[np.ndarray],
        count: int,
        sequence: int,
        version: int,
        writer: int,
        track: Track,
        frame: Frame | None,
    ) -> None:
        self.arrays = arrays
        self.at = 0
        self.count = count
        self.sequence = sequence
        """Of item 0."""
        self.version = version
        self.writer = writer
        self.track = track
        self.frame = frame
        self.skipped = 0
        self.missing = 0

    @property
    def left(self) -> int:
        """Items that are still to be copied."""
        return self.count - self.at

    def release(self) -> None:
        """Its memory is not needed any more."""
        self.arrays = []
        if self.frame is not None:
            self.frame.release()


class Source:
    """A link that items come from: who writes there, and what its blocks look like as arrays."""

    __slots__ = ("_views", "track", "writer")

    def __init__(self, writer: int, track: Track) -> None:
        self.writer = writer
        self.track = track
        self._views: dict[int, tuple[object, int, int, list[np.ndarray]]] = {}

    def arrays(self, frame: Frame, schema: Schema) -> list[np.ndarray]:
        """The arrays of a frame: a block that stays in its place needs to be looked at once only."""
        header, payload = frame.header, frame.payload
        memory = payload.obj
        known = self._views.get(frame.block)
        if (
            known is not None
            and known[0] is memory
            and known[1] == header.count
            and known[2] == len(payload)
            and header.schema == schema.hash
        ):
            return known[3]
        arrays = list(frame.arrays(schema).values())
        if isinstance(memory, mmap.mmap):
            self._views[frame.block] = (memory, header.count, len(payload), arrays)
        return arrays


def open_frame(frame: Frame, schema: Schema, source: Source) -> Piece:
    """The new items of a frame; a frame that a writer should not have sent is a `BadMessage`."""
    header = frame.header
    if header.verb != ITEMS or not 1 <= header.count <= MOST_ITEMS:
        raise BadMessage(f"{header.count} items with verb {header.verb}")
    if not 1 <= header.sequence <= LARGEST or not 0 <= header.version <= LARGEST:
        raise BadMessage(f"sequence {header.sequence} and version {header.version}")
    arrays, track = source.arrays(frame, schema), source.track
    piece = Piece(arrays, header.count, header.sequence, header.version, source.writer, track, frame)
    behind = track.taken - header.sequence + 1
    if behind > 0:
        piece.at = piece.skipped = min(header.count, behind)
    elif track.taken:
        piece.missing = -behind
    return piece


class Filled:
    """A batch that is being filled."""

    __slots__ = ("_parts", "batch", "count", "out")

    def __init__(self, batch: Batch, out: Mapping[str, np.ndarray] | None) -> None:
        self.batch = batch
        self.out = out
        self.count = 0
        self._parts: list[tuple[Track, int, int, int, int, int]] = []

    def take(self, piece: Piece) -> int:
        """Copy as many items as fit; how many are left."""
        batch, at, begin = self.batch, self.count, piece.at
        size = min(piece.count - begin, len(batch.versions) - at)
        first, track = piece.sequence + begin, piece.track
        end = self.count = at + size
        piece.at = begin + size
        if first + size > track.taken:
            track.taken = first + size - 1
        if size == 1:
            for array, source in zip(batch.firsts, piece.arrays, strict=True):
                array[at] = source[begin]
            batch.versions[at], batch.writers[at] = piece.version, piece.writer
            batch.incarnations[at], batch.sequences[at] = track.incarnation, first
        else:
            for array, source in zip(batch.firsts, piece.arrays, strict=True):
                array[at:end] = source[begin : piece.at]
            batch.versions[at:end], batch.writers[at:end] = piece.version, piece.writer
            batch.incarnations[at:end] = track.incarnation
            np.add(_RAMP[:size], first, out=batch.sequences[at:end])
        self._parts.append((track, at, size, first, piece.version, piece.writer))
        return piece.left

    def pieces(self) -> list[Piece]:
        """What was copied so far, to be copied elsewhere."""
        found = []
        for track, at, size, first, version, writer in self._parts:
            arrays = [array[at : at + size].copy() for array in self.batch.firsts]
            found.append(Piece(arrays, size, first, version, writer, track, None))
        return found

    def finish(self) -> list[tuple[int, int]]:
        """The user has it: versions and numbers of items."""
        for track, _, size, first, _, _ in self._parts:
            track.read = max(track.read, first + size - 1)
        return [(version, size) for _, _, size, _, version, _ in self._parts]


class Tally:
    """What a reader has seen: plain numbers, read by the metrics."""

    def __init__(self) -> None:
        self.items = 0
        self.batches = 0
        self.duplicates = 0
        self.missing = 0
        self.stale = 0
        self.bad = 0
        self.waited = 0.0
        self._lags = [0] * _BUCKETS
        self.lag_metric: Histogram | None = None

    def opened(self, piece: Piece) -> None:
        """A frame's items, some of which may be known already, or may not have come."""
        self.duplicates += piece.skipped
        self.missing += piece.missing

    def batch(self, filled: Filled, version: int, most: int | None) -> None:
        """A batch is complete: how old its items are."""
        batch = filled.batch
        self.batches += 1
        self.items += filled.count
        np.subtract(version, batch.versions, out=batch.lag)
        if most is not None:
            np.less_equal(batch.lag, most, out=batch.fresh)
            batch.stale = filled.count - int(np.count_nonzero(batch.fresh))
            self.stale += batch.stale
        for made, size in filled.finish():
            lag = max(0, version - made)
            self._lags[lag.bit_length()] += size
            if self.lag_metric is not None:
                self.lag_metric.observe(lag, size)

    def lags(self) -> dict[int, int]:
        """Items by how much they lagged at most."""
        last = max((n for n, count in enumerate(self._lags) if count), default=-1)
        return {(1 << n) - 1: self._lags[n] for n in range(last + 1)}

    def counts(self) -> dict[str, float]:
        """The plain numbers."""
        return {
            "items": self.items,
            "batches": self.batches,
            "duplicates": self.duplicates,
            "missing": self.missing,
            "stale": self.stale,
            "bad": self.bad,
            "waited": self.waited,
        }
