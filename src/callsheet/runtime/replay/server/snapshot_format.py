"""The content of a snapshot: tables at one point in time, and how they are encoded.

Items never change once they are in a table, so a snapshot does not copy them: it records positions, and a thread
reads the items while the table is in use. Items stored by an earlier snapshot are not stored again. Only priorities
and a few numbers are copied at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from callsheet.runtime.link.protocol import Natural
from callsheet.runtime.replay.server.item_ring import ItemRing
from callsheet.runtime.replay.server.selectors import Prioritized
from callsheet.runtime.replay.server.table_service import TableService
from callsheet.runtime.stream.delivery_log import Cursor

FORMAT = 1


class Segment(msgspec.Struct, frozen=True):
    """Consecutive items in one object of the store, a segment of the table or part of one: array after array."""

    key: str
    start: Natural
    count: Natural
    sha256: str

    @property
    def stop(self) -> int:
        """The position after the last item."""
        return self.start + self.count


class SavedTable(msgspec.Struct):
    """A table in a snapshot."""

    name: str
    schema: bytes
    first: Natural
    next: Natural
    epochs: list[tuple[Natural, Natural]] = msgspec.field(name="lives")
    inserted: Natural
    sampled: Natural
    max_priority: float = msgspec.field(name="highest")
    cursor: Cursor = msgspec.field(name="marks")
    segments: list[Segment]


class ReplaySnapshot(msgspec.Struct):
    """The root of a snapshot."""

    tables: list[SavedTable]
    format: int = FORMAT


@dataclass
class FrozenTable:
    """A table at one point in time, and the ring from which its items can be read."""

    saved: SavedTable
    ring: ItemRing | None
    priorities: NDArray[np.float32]

    def drop_before(self, position: int) -> None:
        """Older items have been overwritten: the snapshot starts here."""
        gone = position - self.saved.first
        self.saved.first = position
        self.priorities = self.priorities[gone:]


def freeze(service: TableService) -> FrozenTable:
    """The table as it is now."""
    table = service.table
    known = table.schema is not None
    saved = SavedTable(
        name=table.options.name,
        schema=table.ring.schema.encoded if known else b"",
        first=table.first,
        next=table.ring.next if known else 0,
        epochs=list(table.epochs),
        inserted=table.limiter.inserted,
        sampled=table.limiter.sampled,
        max_priority=1.0,
        cursor=service.delivery_log.cursor(),
        segments=[],
    )
    priorities = np.empty(0, np.float32)
    if known and isinstance(table.selector, Prioritized):
        saved.max_priority = table.selector.max_priority
        priorities = table.selector.priorities(table.first, table.size)
    return FrozenTable(saved, table.ring if known else None, priorities)
