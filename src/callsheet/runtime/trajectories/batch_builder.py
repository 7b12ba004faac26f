"""Copies frames into a batch: skips duplicates, tracks what was copied, and counts."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from callsheet.runtime.link.frame import Frame, MultipartPayload
from callsheet.runtime.link.protocol import NO_BLOCK, BadMessage
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream.delivery_log import MAX_SEQUENCE, Progress
from callsheet.runtime.stream.packing import MAX_ITEMS
from callsheet.runtime.stream.sender import ITEMS
from callsheet.runtime.trajectories.batch import Batch

if TYPE_CHECKING:
    from callsheet.metrics import Histogram

SERVICE: Final = "trajectories"
"""The service that writers and readers name in their hello."""
WINDOW: Final = 8
"""Frames of one writer in flight: enough to keep a network busy, few enough to stay fresh."""
_OFFSETS = np.arange(MAX_ITEMS, dtype=np.int64)
_BUCKETS = 64


class PendingItems:
    """Items of one frame that are still to be copied."""

    __slots__ = (
        "arrays",
        "at",
        "count",
        "frame",
        "parts",
        "progress",
        "sequence",
        "starts",
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
        progress: Progress,
        frame: Frame | None = None,
    ) -> None:
        self.arrays = arrays
        """For one item its arrays, for several `[item, ...]`; empty if the item's bytes lie in `parts`."""
        self.parts: MultipartPayload | None = None
        self.starts: list[int] = []
        """Offset of each array in the parts."""
        self.at = 0
        """The next item to copy."""
        self.count = count
        self.sequence = sequence
        """Sequence number of item 0."""
        self.version = version
        self.writer = writer
        self.progress = progress
        self.frame = frame


class WriterState:
    """A writer's progress, and its blocks as arrays."""

    __slots__ = ("_views", "progress", "writer")

    def __init__(self, writer: int, progress: Progress) -> None:
        self.writer = writer
        self.progress = progress
        self._views: dict[int, tuple[object, int, int, list[np.ndarray]]] = {}

    def open(self, frame: Frame, schema: Schema, stats: ReaderStats) -> PendingItems:
        """The new items of a frame; duplicates are skipped. `BadMessage` if the writer violated the protocol."""
        header, progress = frame.header, self.progress
        first, count = header.sequence, header.count
        if header.verb != ITEMS or not 1 <= count <= MAX_ITEMS or frame.block == NO_BLOCK:
            raise BadMessage(f"{count} items with verb {header.verb}")
        if not 1 <= first <= MAX_SEQUENCE or not 0 <= header.version <= MAX_SEQUENCE:
            raise BadMessage(f"sequence {first} and version {header.version}")
        scattered = frame.payload if count == 1 and isinstance(frame.payload, MultipartPayload) else None
        arrays = [] if scattered else self._arrays(frame, schema)
        pending = PendingItems(arrays, count, first, header.version, self.writer, progress, frame)
        if scattered:
            pending.parts = scattered
            pending.starts = [start for _, _, _, start in frame.layout(schema).places]
        behind = progress.received - first + 1
        if behind > 0:
            pending.at = min(count, behind)
            stats.duplicates += pending.at
        elif progress.received:
            stats.missing -= behind
        progress.received = max(progress.received, first + count - 1)
        return pending

    def _arrays(self, frame: Frame, schema: Schema) -> list[np.ndarray]:
        """The arrays of a frame, cached as long as its block stays mapped."""
        header, payload = frame.header, frame.contiguous()
        memory = payload.obj
        cached = self._views.get(frame.block)
        if (
            cached is not None
            and cached[0] is memory
            and cached[1] == header.count
            and cached[2] == len(payload)
            and header.schema == schema.hash
        ):
            return cached[3]
        arrays = list(frame.arrays(schema).values())
        if header.count == 1:
            arrays = [array[0, ...] for array in arrays]
        if isinstance(memory, mmap.mmap):
            self._views[frame.block] = (memory, header.count, len(payload), arrays)
        return arrays


class BatchBuilder:
    """A batch that is being filled."""

    __slots__ = ("_copied", "batch", "count", "out")

    def __init__(self, batch: Batch, out: Mapping[str, np.ndarray] | None) -> None:
        self.batch = batch
        self.out = out
        self.count = 0
        self._copied: list[tuple[int, int, int, PendingItems]] = []

    def take(self, backlog: deque[PendingItems]) -> None:
        """Copy as many pending items as fit, in order. This does little else: code between copies of large arrays
        runs with cold caches."""
        batch, at, size = self.batch, self.count, len(self.batch)
        while backlog and at < size:
            pending = backlog[0]
            begin = pending.at
            end = min(pending.count, begin + size - at)
            if end > begin:
                if pending.parts is not None:
                    for array, start in zip(batch.row(at), pending.starts, strict=True):
                        pending.parts.copy(start, array)
                elif pending.count == 1:
                    for array, source in zip(batch.row(at), pending.arrays, strict=True):
                        array[...] = source
                else:
                    for array, source in zip(batch.firsts, pending.arrays, strict=True):
                        array[at : at + end - begin] = source[begin:end]
                self._copied.append((at, begin, end, pending))
                at += end - begin
            pending.at = end
            if end == pending.count:
                backlog.popleft()
                pending.arrays, pending.parts = [], None
                if pending.frame is not None:
                    pending.frame.release()
        self.count = at

    def take_back(self) -> list[PendingItems]:
        """Take back what was copied so far, to copy it elsewhere."""
        taken = []
        for at, begin, end, pending in self._copied:
            where = at if end - begin == 1 else slice(at, at + end - begin)
            arrays = [array[where, ...].copy() for array in self.batch.firsts]
            first = pending.sequence + begin
            origin = (pending.version, pending.writer, pending.progress)
            taken.append(PendingItems(arrays, end - begin, first, *origin))
        return taken

    def finish(self) -> dict[int, int]:
        """Complete the batch's metadata and record what was consumed; return the number of items per version."""
        batch = self.batch
        versions: dict[int, int] = {}
        for at, begin, end, pending in self._copied:
            count, progress = end - begin, pending.progress
            first = pending.sequence + begin
            progress.consumed = max(progress.consumed, first + count - 1)
            if count == 1:
                batch.versions[at], batch.writers[at] = pending.version, pending.writer
                batch.incarnations[at], batch.sequences[at] = progress.incarnation, first
            else:
                to = at + count
                batch.versions[at:to], batch.writers[at:to] = pending.version, pending.writer
                batch.incarnations[at:to] = progress.incarnation
                np.add(_OFFSETS[:count], first, out=batch.sequences[at:to])
            versions[pending.version] = versions.get(pending.version, 0) + count
        return versions


class ReaderStats:
    """Counters of a reader, read by the metrics."""

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

    def batch(self, builder: BatchBuilder, version: int, most: int | None) -> None:
        """Count a complete batch, and how far its items lag."""
        batch = builder.batch
        self.batches += 1
        self.items += builder.count
        for made, size in builder.finish().items():
            lag = max(0, version - made)
            self._lags[lag.bit_length()] += size
            if self.lag_metric is not None:
                self.lag_metric.observe(lag, size)
        np.subtract(version, batch.versions, out=batch.lag)
        np.less_equal(batch.lag, MAX_SEQUENCE if most is None else most, out=batch.fresh)
        batch.stale = builder.count - int(np.count_nonzero(batch.fresh))
        self.stale += batch.stale

    def lags(self) -> dict[int, int]:
        """Number of items by upper bound of their lag."""
        last = max((n for n, count in enumerate(self._lags) if count), default=-1)
        return {(1 << n) - 1: self._lags[n] for n in range(last + 1)}

    def counts(self) -> dict[str, float]:
        """The counters by name."""
        return {
            "items": self.items,
            "batches": self.batches,
            "duplicates": self.duplicates,
            "missing": self.missing,
            "stale": self.stale,
            "bad": self.bad,
            "waited": self.waited,
        }
