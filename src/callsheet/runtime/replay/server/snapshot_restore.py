"""Tables as a snapshot has them: the newest that can be read, checked piece by piece."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.runtime.link.protocol import BadMessage, decode
from callsheet.runtime.replay.config import Table
from callsheet.runtime.replay.protocol import MAX_PRIORITY, POSITION_BITS
from callsheet.runtime.replay.server.item_ring import SEGMENT_BYTES
from callsheet.runtime.replay.server.selectors import Prioritized
from callsheet.runtime.replay.server.snapshot_format import FORMAT, ReplaySnapshot, SavedTable, Segment
from callsheet.runtime.replay.server.snapshot_writer import STATE
from callsheet.runtime.replay.server.table import LiveTable
from callsheet.runtime.replay.server.table_service import TableService
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream.delivery_log import DeliveryLog
from callsheet.store import BadSet, NotFound, Store, StoredSet, latest

log = logging.getLogger("callsheet.runtime")
_STATE = msgspec.msgpack.Decoder(ReplaySnapshot)


@dataclass
class RestoredTable:
    """A table that goes on where a snapshot was taken."""

    service: TableService
    segments: list[Segment]


def restore(store: Store, tables: Iterable[Table]) -> dict[str, RestoredTable]:
    """The tables of the newest snapshot that can be read; none when there is no snapshot.

    One that is damaged is said so, and the one before it is taken. When all are, that is an error: a replay must not
    begin anew in silence."""
    wanted = {one.name: one for one in tables}
    before: int | None = None
    damage: BadSet | None = None
    while (found := latest(store, before=before, skip_bad=True)) is not None:
        try:
            return _load(store, found, wanted)
        except BadSet as bad:
            log.warning("%s; trying the one before", bad.message)
            damage, before = bad, found.number
    if damage is not None:
        raise damage
    return {}


def _load(store: Store, found: StoredSet, wanted: dict[str, Table]) -> dict[str, RestoredTable]:
    try:
        snapshot = decode(_STATE, found.read(STATE), "a state")
    except BadMessage as error:
        raise BadSet(f"{found.name} in {store.url} is no snapshot of a replay: {error}") from None
    if snapshot.format != FORMAT:
        raise UserError(
            f"the snapshot in {store.url} has the format {snapshot.format}, and this is {FORMAT}",
            fix="use the version of Callsheet that wrote it, or another storage",
        )
    loaded = {}
    for number, saved in enumerate(snapshot.tables):
        if saved.name not in wanted:
            log.warning("the snapshot has a table %r that is not wanted any more", saved.name)
            continue
        try:
            priorities = np.frombuffer(found.read(f"priorities-{number}"), "<f4")
            loaded[saved.name] = _table(store, saved, wanted[saved.name], priorities)
        except (ValueError, OverflowError) as error:
            raise BadSet(
                f"{found.name} in {store.url} has a table {saved.name!r} that cannot be: {error}"
            ) from None
    return loaded


def _table(store: Store, saved: SavedTable, options: Table, priorities: NDArray[np.float32]) -> RestoredTable:
    if not saved.first <= saved.next < 1 << POSITION_BITS or not saved.epochs:
        raise ValueError(f"items {saved.first} to {saved.next}, {len(saved.epochs)} lives")
    if not ((priorities >= 0) & (priorities <= MAX_PRIORITY)).all() or not math.isfinite(saved.max_priority):
        raise ValueError("priorities that are negative, too large or no numbers")
    table = LiveTable(options)
    service = TableService(table, DeliveryLog(saved.cursor))
    table.limiter.inserted, table.limiter.sampled = saved.inserted, saved.sampled
    table.epochs = saved.epochs
    if not saved.schema:
        return RestoredTable(service, [])
    schema = Schema.decode(saved.schema)
    if options.schema is not None and options.schema != schema:
        raise UserError(
            f"the snapshot of table {options.name!r} has other items: {options.schema.difference(schema)}",
            fix="go on with the same items, or use another storage",
        )
    if options.schema is None:
        table.allocate(schema)
    segments = [
        one for one in saved.segments if one.stop > max(saved.first, saved.next - table.ring.capacity)
    ]
    table.ring.reset_to(segments[0].start if segments else saved.next)
    for one in segments:
        _read(store, one, table)
    if table.ring.next != saved.next:
        raise BadSet(f"the snapshot of table {saved.name!r} in {store.url} ends at {table.ring.next}")
    table.first = max(saved.first, saved.next - table.ring.capacity)
    if table.size and (not segments or segments[0].start > table.first):
        raise ValueError(f"items from {table.first} on without those of the first segment")
    if 0 < len(priorities) < table.size:
        raise ValueError(f"{len(priorities)} priorities for {table.size} items")
    if isinstance(table.selector, Prioritized):
        table.selector.max_priority = saved.max_priority
        known = priorities[len(priorities) - table.size :] if len(priorities) else np.full(table.size, np.nan)
        table.selector.insert(table.first, known.astype(np.float32))
    table.counts.restored = table.size
    return RestoredTable(service, segments)


def _read(store: Store, segment: Segment, table: LiveTable) -> None:
    """Put the items of a segment into the table."""
    where = f"{store.url}/{segment.key}"
    if segment.count * table.item_bytes > max(SEGMENT_BYTES, table.item_bytes):
        raise ValueError(f"a segment of {segment.count} items")
    memory = bytearray(segment.count * table.item_bytes)
    digest, at = hashlib.sha256(), 0
    try:
        for chunk in store.stream(segment.key):
            digest.update(chunk)
            memory[at : at + len(chunk)] = chunk
            at += len(chunk)
            if len(memory) > segment.count * table.item_bytes:
                raise BadSet(f"{where} is larger than what was written")
    except NotFound:
        raise BadSet(f"{where}, which a snapshot names, is not there") from None
    if digest.hexdigest() != segment.sha256 or segment.start != table.ring.next:
        raise BadSet(f"{where} is not what was written")
    items, at = {}, 0
    for name, array in table.ring.arrays.items():
        shape = (segment.count, *array.shape[1:])
        items[name] = np.ndarray(shape, array.dtype, memory, at)
        at += math.prod(shape) * array.dtype.itemsize
    for done in range(0, segment.count, table.ring.capacity):
        table.ring.write(items, done, min(table.ring.capacity, segment.count - done))
