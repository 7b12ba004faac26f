"""Restores tables from the newest snapshot that can be read, verifying every part."""

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
    """A table restored from a snapshot."""

    service: TableService
    segments: list[Segment]


def restore(store: Store, tables: Iterable[Table]) -> dict[str, RestoredTable]:
    """The tables of the newest readable snapshot; empty if there is no snapshot.

    A damaged one is logged, and the one before it is used. If all are damaged, that is an error: a replay must not
    silently start empty.
    """
    tables_by_name = {table.name: table for table in tables}
    before: int | None = None
    damage: BadSet | None = None
    while (stored_set := latest(store, before=before, skip_bad=True)) is not None:
        try:
            return _load(store, stored_set, tables_by_name)
        except BadSet as bad:
            log.warning("%s; trying the one before", bad.message)
            damage, before = bad, stored_set.number
    if damage is not None:
        raise damage
    return {}


def _load(store: Store, stored_set: StoredSet, tables_by_name: dict[str, Table]) -> dict[str, RestoredTable]:
    try:
        snapshot = decode(_STATE, stored_set.read(STATE), "a state")
    except BadMessage as error:
        raise BadSet(f"{stored_set.name} in {store.url} is no snapshot of a replay: {error}") from None
    if snapshot.format != FORMAT:
        raise UserError(
            f"the snapshot in {store.url} has format {snapshot.format}, but this version reads {FORMAT}",
            fix="use the version of Callsheet that wrote it, or another storage",
        )
    loaded = {}
    for number, saved in enumerate(snapshot.tables):
        if saved.name not in tables_by_name:
            log.warning("the snapshot has a table %r that is not configured anymore", saved.name)
            continue
        try:
            priorities = np.frombuffer(stored_set.read(f"priorities-{number}"), "<f4")
            loaded[saved.name] = _table(store, saved, tables_by_name[saved.name], priorities)
        except (ValueError, OverflowError) as error:
            raise BadSet(
                f"{stored_set.name} in {store.url} has a table {saved.name!r} that cannot be: {error}"
            ) from None
    return loaded


def _table(store: Store, saved: SavedTable, options: Table, priorities: NDArray[np.float32]) -> RestoredTable:
    if not saved.first <= saved.next < 1 << POSITION_BITS or not saved.epochs:
        raise ValueError(f"items {saved.first} to {saved.next}, {len(saved.epochs)} epochs")
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
            fix="insert the same items, or use another storage",
        )
    if options.schema is None:
        table.allocate(schema)
    segments = [
        segment
        for segment in saved.segments
        if segment.stop > max(saved.first, saved.next - table.ring.capacity)
    ]
    table.ring.reset_to(segments[0].start if segments else saved.next)
    for segment in segments:
        _read(store, segment, table)
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
    """Write the items of a segment into the table."""
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
