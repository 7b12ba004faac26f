"""What a snapshot is made of: a table as it was at one moment, and how that is written down.

Items never change once they are in a table, so a snapshot need not copy them: it notes the positions, and a thread
reads them while the table goes on. What was stored by an earlier snapshot is not stored again. Only priorities and a
few numbers are copied at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from callsheet.runtime.link.protocol import Natural
from callsheet.runtime.replay.server.item_ring import Ring
from callsheet.runtime.replay.server.selectors import Prioritized
from callsheet.runtime.replay.server.table_service import Service
from callsheet.runtime.stream.delivery_log import Cursor

FORMAT = 1


class Segment(msgspec.Struct, frozen=True):
    """Neighboring items in one object of the store, a segment of the table or a piece of one: array after array."""

    key: str
    start: Natural
    count: Natural
    sha256: str

    @property
    def stop(self) -> int:
        """The position after the last."""
        return self.start + self.count


class Saved(msgspec.Struct):
    """A table in a snapshot."""

    name: str
    schema: bytes
    first: Natural
    next: Natural
    lives: list[tuple[Natural, Natural]]
    inserted: Natural
    sampled: Natural
    highest: float
    marks: Cursor
    segments: list[Segment]


class Snapshot(msgspec.Struct):
    """What a set of parts in the store describes."""

    tables: list[Saved]
    format: int = FORMAT


@dataclass
class Frozen:
    """A table at one moment, with the memory from which its items can be read."""

    saved: Saved
    ring: Ring | None
    priorities: NDArray[np.float32]

    def forget_before(self, position: int) -> None:
        """Older items have been overwritten: the snapshot is of those from here on."""
        gone = position - self.saved.first
        self.saved.first = position
        self.priorities = self.priorities[gone:]


def freeze(service: Service) -> Frozen:
    """The table as it is now."""
    table = service.table
    known = table.schema is not None
    saved = Saved(
        name=table.options.name,
        schema=table.ring.schema.encoded if known else b"",
        first=table.first,
        next=table.ring.next if known else 0,
        lives=list(table.lives),
        inserted=table.limiter.inserted,
        sampled=table.limiter.sampled,
        highest=1.0,
        marks=service.ledger.cursor(),
        segments=[],
    )
    priorities = np.empty(0, np.float32)
    if known and isinstance(table.picker, Prioritized):
        saved.highest = table.picker.highest
        priorities = table.picker.priorities(table.first, table.size)
    return Frozen(saved, table.ring if known else None, priorities)
