"""A live table: items, selector and rate limiter, always changed together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callsheet.runtime.replay import protocol
from callsheet.runtime.replay.config import KEY, PROBABILITY, Table, insert_schema, reply_schema
from callsheet.runtime.replay.protocol import EPOCH_BITS, POSITION_BITS
from callsheet.runtime.replay.server.item_ring import ItemRing, Prefaulter
from callsheet.runtime.replay.server.rate_limiter import RateLimiter
from callsheet.runtime.replay.server.selectors import Fifo, Prioritized, Selector, Uniform
from callsheet.runtime.schema import Schema

_POSITION_MASK = np.uint64((1 << POSITION_BITS) - 1)
_EPOCH_MASK = np.uint64((1 << EPOCH_BITS) - 1)

Arrays = Mapping[str, NDArray[np.generic]]


@dataclass
class TableStats:
    """Counters of a table, read by the metrics."""

    inserted: int = 0
    sampled: int = 0
    updated: int = 0
    stale: int = 0
    """Priorities for items that are gone."""
    evicted: int = 0
    restored: int = 0


class LiveTable:
    """Items with keys. A key is the item's position and the *epoch* of the server that received it: positions are
    reused after a crash, and a key of a lost item must not match another."""

    def __init__(self, options: Table) -> None:
        self.options = options
        self.limiter: RateLimiter = options.limiter()
        self.counts = TableStats()
        self.first = 0
        """Position of the oldest item."""
        self.epochs: list[tuple[int, int]] = [(0, 0)]
        """For each epoch that items may belong to: its first position and its number."""
        self.writer_schema: Schema | None = None
        """What writers send, once known."""
        self.sample_schema: Schema | None = None
        """What samples look like, once known."""
        self.item_bytes = 0
        self._ring: ItemRing | None = None
        self._selector: Selector | None = None
        self._prefaulter: Prefaulter | None = None
        if options.schema is not None:
            self.allocate(options.schema)

    @property
    def schema(self) -> Schema | None:
        """The items' schema, once known."""
        return self._ring.schema if self._ring else None

    @property
    def ring(self) -> ItemRing:
        """Where the items are."""
        assert self._ring is not None, "the table's schema is not known yet"
        return self._ring

    @property
    def selector(self) -> Selector:
        """Chooses items to sample."""
        assert self._selector is not None, "the table's schema is not known yet"
        return self._selector

    @property
    def size(self) -> int:
        """Number of items."""
        return self._ring.next - self.first if self._ring else 0

    @property
    def total_weight(self) -> float:
        """Sum of all sampling weights."""
        return self.selector.total_weight(self.first) if self._ring else 0.0

    def allocate(self, schema: Schema) -> None:
        """Allocate memory for items of this schema; `UserError` if that is not possible."""
        capacity = self.options.capacity(schema)
        ring = ItemRing(schema, capacity)
        self._selector = self._new_selector(ring)
        self._ring, self._prefaulter = ring, Prefaulter(ring)
        self.writer_schema, self.sample_schema = insert_schema(schema), reply_schema(schema)
        self.item_bytes = schema.item_bytes

    def _new_selector(self, ring: ItemRing) -> Selector:
        rng = np.random.default_rng(self.options.seed)
        match self.options.kind:
            case "prioritized":
                return Prioritized(ring, rng, self.options.alpha)
            case "fifo":
                return Fifo(ring, rng)
            case _:
                return Uniform(ring, rng)

    def insertable(self, count: int) -> int:
        """How many of `count` items may be inserted now, up to the capacity at a time."""
        capacity = self.ring.capacity
        most = capacity - self.size if self.options.kind == "fifo" else capacity
        return self.limiter.allowed_inserts(self.size, min(count, most))

    def why_no_insert(self) -> str:
        """What an insert waits for."""
        if self.options.kind == "fifo" and self.size >= self.ring.capacity:
            return f"inserts wait for samples: the queue is full with {self.size:,} items"
        return self.limiter.why_no_insert()

    def can_sample(self, count: int) -> bool:
        """Whether `count` items may be sampled now."""
        if self._ring is None or not self.limiter.can_sample(self.size):
            return False
        return self.size >= count if self.selector.removes_sampled else self.total_weight > 0

    def impossible_sample(self, count: int) -> tuple[str, str] | None:
        """Why `count` items can never be sampled at once, and the fix; None if they can, as far as is known."""
        size, most = self.item_bytes, protocol.MAX_SAMPLE_BYTES
        if count * size > most:
            fits = most // size
            return (
                f"a batch of {count:,} items of {size:,} bytes is larger than {most:,} bytes",
                f"choose batch={fits} or less" if fits else "make the items smaller",
            )
        if self._ring is not None and self.selector.removes_sampled and count > self._ring.capacity:
            return (
                f"a batch of {count:,} items from a queue of {self._ring.capacity:,}",
                "make the queue larger, or the batch smaller",
            )
        return None

    def why_no_sample(self, count: int) -> str:
        """What a sample waits for."""
        if not self.limiter.can_sample(self.size):
            return self.limiter.why_no_sample(self.size)
        if self.size < count:
            return f"samples wait for items: there are {self.size:,} of {count:,}"
        return f"samples wait for priorities: those of all {self.size:,} items are 0"

    def insert(self, items: Arrays, skip: int, priorities: NDArray[np.float32]) -> None:
        """Insert items from number `skip` on, one for each priority, as many as `insertable` allows. A priority of
        NaN stands for the largest so far."""
        count = len(priorities)
        start = self.ring.write(items, skip, count)
        too_many = self.size - self.ring.capacity
        if too_many > 0:
            self.selector.evict(self.first, too_many)
            self.first += too_many
            self.counts.evicted += too_many
        self.selector.insert(start, priorities)
        if self._prefaulter is not None:
            self._prefaulter.on_written(self.ring.next)
        self.counts.inserted += count
        self.limiter.inserted += count

    def sample(self, count: int, into: Arrays) -> None:
        """Sample items, with their keys and probabilities."""
        positions, chances = self.selector.sample(self.first, count)
        self.ring.gather(positions % self.ring.slots, into)
        into[KEY][:] = self._keys(positions)
        into[PROBABILITY][:] = chances
        if self.selector.removes_sampled:
            self.first += count
        self.counts.sampled += count
        self.limiter.sampled += count

    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float32]) -> None:
        """Update priorities; keys of items that are gone are counted and ignored."""
        positions = (keys & _POSITION_MASK).astype(np.int64)
        there = (positions >= self.first) & (positions < (self._ring.next if self._ring else 0))
        there &= self._epochs_of(positions) == (keys >> np.uint64(POSITION_BITS) & _EPOCH_MASK)
        stale = len(keys) - int(np.count_nonzero(there))
        if stale:
            self.counts.stale += stale
            positions, priorities = positions[there], priorities[there]
        if self._ring:
            self.selector.update(positions, priorities)
        self.counts.updated += len(positions)

    def _keys(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        return positions.astype(np.uint64) | self._epochs_of(positions) << np.uint64(POSITION_BITS)

    def _epochs_of(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        if len(self.epochs) == 1:
            return np.full(len(positions), self.epochs[0][1], np.uint64)
        began = np.array([start for start, _ in self.epochs])
        numbers = np.array([number for _, number in self.epochs], np.uint64)
        return numbers[np.maximum(began.searchsorted(positions, side="right") - 1, 0)]

    def begin_epoch(self, number: int) -> None:
        """A server has started: items get new keys from now on. The number should be new."""
        here = self._ring.next if self._ring else 0
        kept = [epoch for epoch in self.epochs if epoch[0] < here]
        while len(kept) > 1 and kept[1][0] <= self.first:
            kept.pop(0)
        kept = kept[-(1 << EPOCH_BITS) + 1 :]
        taken = {epoch for _, epoch in kept}
        while (number := number % (1 << EPOCH_BITS)) in taken:
            number += 1
        self.epochs = [*kept, (here, number)]
