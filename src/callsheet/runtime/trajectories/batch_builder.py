"""Frames on their way into a batch: which of their items are new, how far they are copied, and what that adds up to."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from callsheet.runtime.link.frame import Frame, MultipartPayload
from callsheet.runtime.link.protocol import NO_BLOCK, BadMessage
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream.delivery_log import LARGEST, Track
from callsheet.runtime.stream.packing import MOST_ITEMS
from callsheet.runtime.stream.sender import ITEMS
from callsheet.runtime.trajectories.batch import Batch

if TYPE_CHECKING:
    from callsheet.metrics import Histogram

SERVICE: Final = "trajectories"
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
        "parts",
        "sequence",
        "starts",
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
        frame: Frame | None = None,
    ) -> None:
        self.arrays = arrays
        """Of one item as it is, of several as `[item, ...]`; empty when the item's bytes lie in `parts`."""
        self.parts: MultipartPayload | None = None
        self.starts: list[int] = []
        """Where each array begins in them."""
        self.at = 0
        """The first item that is still to be copied."""
        self.count = count
        self.sequence = sequence
        """Of item 0."""
        self.version = version
        self.writer = writer
        self.track = track
        self.frame = frame


class Source:
    """A link that items come from: who writes there, and what its blocks look like as arrays."""

    __slots__ = ("_views", "track", "writer")

    def __init__(self, writer: int, track: Track) -> None:
        self.writer = writer
        self.track = track
        self._views: dict[int, tuple[object, int, int, list[np.ndarray]]] = {}

    def open(self, frame: Frame, schema: Schema, tally: Tally) -> Piece:
        """The items of a frame, those that are known already passed over; what a writer should not have sent is a
        `BadMessage`."""
        header, track = frame.header, self.track
        first, count = header.sequence, header.count
        if header.verb != ITEMS or not 1 <= count <= MOST_ITEMS or frame.block == NO_BLOCK:
            raise BadMessage(f"{count} items with verb {header.verb}")
        if not 1 <= first <= LARGEST or not 0 <= header.version <= LARGEST:
            raise BadMessage(f"sequence {first} and version {header.version}")
        scattered = frame.payload if count == 1 and isinstance(frame.payload, MultipartPayload) else None
        arrays = [] if scattered else self._arrays(frame, schema)
        piece = Piece(arrays, count, first, header.version, self.writer, track, frame)
        if scattered:
            piece.parts = scattered
            piece.starts = [start for _, _, _, start in frame.layout(schema).places]
        behind = track.taken - first + 1
        if behind > 0:
            piece.at = min(count, behind)
            tally.duplicates += piece.at
        elif track.taken:
            tally.missing -= behind
        track.taken = max(track.taken, first + count - 1)
        return piece

    def _arrays(self, frame: Frame, schema: Schema) -> list[np.ndarray]:
        """The arrays of a frame: a block that stays in its place needs to be looked at once only."""
        header, payload = frame.header, frame.contiguous()
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
        if header.count == 1:
            arrays = [array[0, ...] for array in arrays]
        if isinstance(memory, mmap.mmap):
            self._views[frame.block] = (memory, header.count, len(payload), arrays)
        return arrays


class Filled:
    """A batch that is being filled."""

    __slots__ = ("_parts", "batch", "count", "out")

    def __init__(self, batch: Batch, out: Mapping[str, np.ndarray] | None) -> None:
        self.batch = batch
        self.out = out
        self.count = 0
        self._parts: list[tuple[int, int, int, Piece]] = []

    def take(self, backlog: deque[Piece]) -> None:
        """Copy what waits, as much as fits, in its order. Little else is done here: what lies between two copies of
        large arrays runs with cold caches."""
        batch, at, size = self.batch, self.count, len(self.batch)
        while backlog and at < size:
            piece = backlog[0]
            begin = piece.at
            end = min(piece.count, begin + size - at)
            if end > begin:
                if piece.parts is not None:
                    for array, start in zip(batch.row(at), piece.starts, strict=True):
                        piece.parts.copy(start, array)
                elif piece.count == 1:
                    for array, source in zip(batch.row(at), piece.arrays, strict=True):
                        array[...] = source
                else:
                    for array, source in zip(batch.firsts, piece.arrays, strict=True):
                        array[at : at + end - begin] = source[begin:end]
                self._parts.append((at, begin, end, piece))
                at += end - begin
            piece.at = end
            if end == piece.count:
                backlog.popleft()
                piece.arrays, piece.parts = [], None
                if piece.frame is not None:
                    piece.frame.release()
        self.count = at

    def pieces(self) -> list[Piece]:
        """What was copied so far, to be copied elsewhere."""
        found = []
        for at, begin, end, piece in self._parts:
            where = at if end - begin == 1 else slice(at, at + end - begin)
            arrays = [array[where, ...].copy() for array in self.batch.firsts]
            first = piece.sequence + begin
            found.append(Piece(arrays, end - begin, first, piece.version, piece.writer, piece.track))
        return found

    def finish(self) -> dict[int, int]:
        """The user gets it: what is known of each item is written down. How many items there are of each version."""
        batch = self.batch
        versions: dict[int, int] = {}
        for at, begin, end, piece in self._parts:
            count, track = end - begin, piece.track
            first = piece.sequence + begin
            track.read = max(track.read, first + count - 1)
            if count == 1:
                batch.versions[at], batch.writers[at] = piece.version, piece.writer
                batch.incarnations[at], batch.sequences[at] = track.incarnation, first
            else:
                to = at + count
                batch.versions[at:to], batch.writers[at:to] = piece.version, piece.writer
                batch.incarnations[at:to] = track.incarnation
                np.add(_RAMP[:count], first, out=batch.sequences[at:to])
            versions[piece.version] = versions.get(piece.version, 0) + count
        return versions


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

    def batch(self, filled: Filled, version: int, most: int | None) -> None:
        """A batch is complete: how old its items are."""
        batch = filled.batch
        self.batches += 1
        self.items += filled.count
        for made, size in filled.finish().items():
            lag = max(0, version - made)
            self._lags[lag.bit_length()] += size
            if self.lag_metric is not None:
                self.lag_metric.observe(lag, size)
        np.subtract(version, batch.versions, out=batch.lag)
        np.less_equal(batch.lag, LARGEST if most is None else most, out=batch.fresh)
        batch.stale = filled.count - int(np.count_nonzero(batch.fresh))
        self.stale += batch.stale

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
