"""Writes snapshots of a server's tables in the background, each complete or not there at all.

Items go to objects of their own, in segments, newest first; then a set of parts is written whose manifest names them.
Segments that no kept snapshot names are removed, unless a later server wrote them, as the fence in the key tells.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import msgspec

from callsheet.errors import CallsheetError
from callsheet.runtime.replay.server.item_ring import ItemRing
from callsheet.runtime.replay.server.snapshot_format import FrozenTable, ReplaySnapshot, Segment
from callsheet.runtime.stream.delivery_log import Cursor
from callsheet.store import BadSet, Fenced, SetWriter, Store, claim
from callsheet.store.manifest import ManifestRecord, all_records
from callsheet.store.upload import UploadBody

log = logging.getLogger("callsheet.runtime")
SEGMENTS = "segments"
STATE = "state"
SEGMENT_KEYS = "segments"
_KEY = re.compile(rf"{SEGMENTS}/\d+-\d+\.(\d+)-\d+")
"""Position, number of items, the server's fence, and a serial number."""
_MAX_PIECES = 8
"""A segment that is still being filled is stored in up to this many pieces, before it is stored as one."""
_WARN_EVERY = 60.0
"""Seconds between two warnings about a failure that persists."""


@dataclass
class SnapshotStats:
    """Counters of the snapshots, read by the metrics."""

    stored: int = 0
    failed: int = 0
    bytes: int = 0
    """Bytes written to the store."""
    seconds: float = 0.0
    """Duration of the last one, in the background."""
    pause: float = 0.0
    """Seconds that clients waited for the last one."""
    longest_pause: float = 0.0


class _SegmentBody:
    """The bytes of a segment, straight from the table; can be read repeatedly."""

    def __init__(self, ring: ItemRing, start: int, count: int) -> None:
        self._memory = [some for some in ring.memory(start, count) if some.nbytes]

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self._memory)


class SnapshotWriter:
    """Writes one snapshot at a time. `on_finished` is called on the writing thread when there is a result to collect."""

    def __init__(self, store: Store, keep: int, on_finished: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._keep = keep
        self._on_finished = on_finished
        self._writer: SetWriter = claim(store)
        self._stored: dict[str, dict[int, list[Segment]]] = {}
        self._thread: threading.Thread | None = None
        self._done: dict[str, Cursor] | None = None
        self._serial = 0
        self._pruned = False
        self._warned_at = 0.0
        self.error: CallsheetError | None = None
        """Why the last one failed; None if it did not."""
        self.counts = SnapshotStats()
        self.observe: Callable[[float], None] = lambda seconds: None
        """Called with the duration of each snapshot."""

    @property
    def fence(self) -> int:
        """Differs from that of every earlier server."""
        return self._writer.fence

    @property
    def running(self) -> bool:
        """Whether one is being written."""
        return self._thread is not None

    def mark_stored(self, table: str, ring: ItemRing, segments: list[Segment]) -> None:
        """These segments are in a restored snapshot, and need not be written again."""
        stored: dict[int, list[Segment]] = {}
        for segment in sorted(segments, key=lambda segment: segment.start):
            if segment.start // ring.segment == (segment.stop - 1) // ring.segment:
                stored.setdefault(segment.start // ring.segment, []).append(segment)
        self._stored[table] = stored

    def start(self, tables: list[FrozenTable], pause: float) -> None:
        """Write these tables, in the background."""
        self.counts.pause = pause
        self.counts.longest_pause = max(pause, self.counts.longest_pause)
        self._thread = threading.Thread(
            target=self._run, args=(tables,), name="callsheet-snapshot", daemon=True
        )
        self._thread.start()

    def collect(self, timeout: float | None = 0.0) -> dict[str, Cursor] | None:
        """What has become durable, per table; None if nothing has. Raises `Fenced` if another server took over."""
        if self._thread is None:
            return None
        self._thread.join(timeout)
        if self._thread.is_alive():
            return None
        self._thread = None
        done, self._done = self._done, None
        if isinstance(self.error, Fenced):
            raise self.error
        return done

    def _run(self, tables: list[FrozenTable]) -> None:
        begun = time.monotonic()
        try:
            self._write(tables)
        except CallsheetError as error:
            self.counts.failed += 1
            if self.error is None or begun - self._warned_at > _WARN_EVERY:
                self._warned_at = begun
                log.warning("a snapshot of the replay failed, will retry: %s", error.message)
            self.error = error
        except Exception:
            self.error = CallsheetError("the snapshot failed")
            self.counts.failed += 1
            log.exception("a snapshot of the replay failed")
        else:
            self.error = None
            self.counts.stored += 1
            self._done = {table.saved.name: table.saved.cursor for table in tables}
        self.counts.seconds = time.monotonic() - begun
        self.observe(self.counts.seconds)
        self._on_finished()

    def _write(self, tables: list[FrozenTable]) -> None:
        if (
            not self._pruned
        ):  # otherwise servers that are killed before their first snapshot would pile up segments
            self._try_prune()
        for table in tables:
            self._write_segments(table)
        segment_keys = [segment.key for table in tables for segment in table.saved.segments]
        self._serial += 1
        with self._writer.write_set(f"replay-{self._serial:06d}", info={SEGMENT_KEYS: segment_keys}) as parts:
            for number, table in enumerate(tables):
                parts.put(f"priorities-{number}", table.priorities.tobytes())
            parts.put(STATE, msgspec.msgpack.encode(ReplaySnapshot([table.saved for table in tables])))
        self._try_prune()

    def _write_segments(self, table: FrozenTable) -> None:
        ring, saved = table.ring, table.saved
        if ring is None:
            return
        stored = self._stored.get(saved.name, {})
        kept: dict[int, list[Segment]] = {}
        for number in range((saved.next - 1) // ring.segment, saved.first // ring.segment - 1, -1):
            start = max(saved.first, number * ring.segment)
            stop = min(saved.next, (number + 1) * ring.segment)
            if start >= stop:
                continue
            pieces = stored.get(number, [])
            if not pieces or pieces[0].start > start or len(pieces) > _MAX_PIECES:
                pieces = []
            done = pieces[-1].stop if pieces else start
            if done < stop:
                piece = self._write_segment(ring, done, stop - done)
                if not ring.intact(done):
                    self._store.delete(piece.key)
                    table.drop_before(stop)
                    break
                pieces = [*pieces, piece]
            kept[number] = pieces
        saved.segments = [piece for _, pieces in sorted(kept.items()) for piece in pieces]
        self._stored[saved.name] = kept

    def _write_segment(self, ring: ItemRing, start: int, count: int) -> Segment:
        self._serial += 1
        body = UploadBody(cast("Iterable[bytes]", _SegmentBody(ring, start, count)), hashed=True)
        key = f"{SEGMENTS}/{start:015d}-{count}.{self._writer.fence}-{self._serial}"
        self._store.put_body(key, body)
        self.counts.bytes += body.done
        return Segment(key, start, count, body.sha256)

    def _try_prune(self) -> None:
        with contextlib.suppress(CallsheetError):  # removed after the next snapshot
            self._prune()
            self._pruned = True

    def _prune(self) -> None:
        """Remove old snapshots, and segments that no snapshot names and no server can still name.

        We may have been suspended for long at any of these lines, with a successor at work. What it needs of ours is
        named by the snapshot it started from; what it wrote carries a later fence.
        """
        self._writer.keep(last=self._keep)
        records = all_records(self._store)
        if any(isinstance(record, BadSet) for record in records):
            return  # it may be the one that names them
        sets = [record for record in records if isinstance(record, ManifestRecord)]
        named = {key for record in sets for key in record.info.get(SEGMENT_KEYS, ())}
        for table in self._stored.values():
            named |= {segment.key for pieces in table.values() for segment in pieces}
        unnamed = [entry.key for entry in self._store.list(SEGMENTS) if entry.key not in named]
        matches = [match for key in unnamed if (match := _KEY.fullmatch(key))]
        self._store.delete(*(match[0] for match in matches if int(match[1]) <= self._writer.fence))
