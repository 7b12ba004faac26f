"""A table while it runs: items, their order and chances, and the limiter, always changed together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callsheet.runtime.replay import protocol
from callsheet.runtime.replay.config import KEY, PROBABILITY, Table, insert_schema, reply_schema
from callsheet.runtime.replay.protocol import LIFE_BITS, POSITION_BITS
from callsheet.runtime.replay.server.item_ring import Ring, Warming
from callsheet.runtime.replay.server.rate_limiter import Limiter
from callsheet.runtime.replay.server.selectors import Fifo, Picker, Prioritized, Uniform
from callsheet.runtime.schema import Schema

_POSITION = np.uint64((1 << POSITION_BITS) - 1)
_LIFE = np.uint64((1 << LIFE_BITS) - 1)

Arrays = Mapping[str, NDArray[np.generic]]


@dataclass
class Counts:
    """What a table has seen; read by the metrics."""

    inserted: int = 0
    sampled: int = 0
    updated: int = 0
    stale: int = 0
    """Priorities for items that are no longer there."""
    evicted: int = 0
    restored: int = 0


class LiveTable:
    """Items with keys. A key is the item's position and the *life* of the server in which it came: after a crash
    positions are used again, and a key of a lost item must not hit another."""

    def __init__(self, options: Table) -> None:
        self.options = options
        self.limiter: Limiter = options.limiter()
        self.counts = Counts()
        self.first = 0
        """The oldest position that is there."""
        self.lives: list[tuple[int, int]] = [(0, 0)]
        """The position at which each life began that an item may belong to, and its number."""
        self.takes: Schema | None = None
        """What writers send, once it is known."""
        self.gives: Schema | None = None
        """What samples look like, once it is known."""
        self.item_bytes = 0
        self._ring: Ring | None = None
        self._picker: Picker | None = None
        self._warming: Warming | None = None
        if options.schema is not None:
            self.adopt(options.schema)

    @property
    def schema(self) -> Schema | None:
        """What items look like, once it is known."""
        return self._ring.schema if self._ring else None

    @property
    def ring(self) -> Ring:
        """Where the items are."""
        assert self._ring is not None, "the table's schema is not known yet"
        return self._ring

    @property
    def picker(self) -> Picker:
        """Which items are drawn."""
        assert self._picker is not None, "the table's schema is not known yet"
        return self._picker

    @property
    def size(self) -> int:
        """How many items are there."""
        return self._ring.next - self.first if self._ring else 0

    @property
    def mass(self) -> float:
        """How much there is to draw from."""
        return self.picker.mass(self.first) if self._ring else 0.0

    def adopt(self, schema: Schema) -> None:
        """Allocate for items like these; a `UserError` says why that cannot be."""
        capacity = self.options.capacity(schema)
        ring = Ring(schema, capacity)
        self._picker = self._picker_for(ring)
        self._ring, self._warming = ring, Warming(ring)
        self.takes, self.gives = insert_schema(schema), reply_schema(schema)
        self.item_bytes = schema.item_bytes

    def _picker_for(self, ring: Ring) -> Picker:
        rng = np.random.default_rng(self.options.seed)
        match self.options.kind:
            case "prioritized":
                return Prioritized(ring, rng, self.options.alpha)
            case "fifo":
                return Fifo(ring, rng)
            case _:
                return Uniform(ring, rng)

    def room(self, count: int) -> int:
        """How many of so many items may come now; of many, a part at a time."""
        capacity = self.ring.capacity
        most = capacity - self.size if self.options.kind == "fifo" else capacity
        return self.limiter.room(self.size, min(count, most))

    def why_no_insert(self) -> str:
        """What an insert waits for."""
        if self.options.kind == "fifo" and self.size >= self.ring.capacity:
            return f"inserts wait for samples: the queue is full with {self.size:,} items"
        return self.limiter.why_no_insert()

    def may_sample(self, count: int) -> bool:
        """Whether so many items may be sampled now."""
        if self._ring is None or not self.limiter.may_sample(self.size):
            return False
        return self.size >= count if self.picker.consumes else self.mass > 0

    def never_sampled(self, count: int) -> tuple[str, str] | None:
        """Why so many items can never be sampled at once, and what to do; None when they can, as far as is known."""
        size, most = self.item_bytes, protocol.LARGEST_SAMPLE
        if count * size > most:
            fits = most // size
            return (
                f"a batch of {count:,} items of {size:,} bytes is larger than {most:,} bytes",
                f"choose batch={fits} or less" if fits else "make the items smaller",
            )
        if self._ring is not None and self.picker.consumes and count > self._ring.capacity:
            return (
                f"a batch of {count:,} items from a queue of {self._ring.capacity:,}",
                "make the queue larger, or the batch smaller",
            )
        return None

    def why_no_sample(self, count: int) -> str:
        """What a sample waits for."""
        if not self.limiter.may_sample(self.size):
            return self.limiter.why_no_sample(self.size)
        if self.size < count:
            return f"samples wait for items: there are {self.size:,} of {count:,}"
        return f"samples wait for priorities: those of all {self.size:,} items are 0"

    def insert(self, items: Arrays, skip: int, priorities: NDArray[np.float32]) -> None:
        """Take items from the one numbered `skip` on, as many as there are priorities and as `room` allows; a priority
        that is no number stands for the largest so far."""
        count = len(priorities)
        start = self.ring.write(items, skip, count)
        too_many = self.size - self.ring.capacity
        if too_many > 0:
            self.picker.evicted(self.first, too_many)
            self.first += too_many
            self.counts.evicted += too_many
        self.picker.added(start, priorities)
        if self._warming is not None:
            self._warming.reached(self.ring.next)
        self.counts.inserted += count
        self.limiter.inserted += count

    def sample(self, count: int, into: Arrays) -> None:
        """Draw items, with their keys and chances."""
        positions, chances = self.picker.draw(self.first, count)
        self.ring.gather(positions % self.ring.slots, into)
        into[KEY][:] = self._keys(positions)
        into[PROBABILITY][:] = chances
        if self.picker.consumes:
            self.first += count
        self.counts.sampled += count
        self.limiter.sampled += count

    def update(self, keys: NDArray[np.uint64], priorities: NDArray[np.float32]) -> None:
        """Change priorities; keys of items that are gone are counted and left alone."""
        positions = (keys & _POSITION).astype(np.int64)
        there = (positions >= self.first) & (positions < (self._ring.next if self._ring else 0))
        there &= self._lives_of(positions) == (keys >> np.uint64(POSITION_BITS) & _LIFE)
        stale = len(keys) - int(np.count_nonzero(there))
        if stale:
            self.counts.stale += stale
            positions, priorities = positions[there], priorities[there]
        if self._ring:
            self.picker.update(positions, priorities)
        self.counts.updated += len(positions)

    def _keys(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        return positions.astype(np.uint64) | self._lives_of(positions) << np.uint64(POSITION_BITS)

    def _lives_of(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        if len(self.lives) == 1:
            return np.full(len(positions), self.lives[0][1], np.uint64)
        began = np.array([start for start, _ in self.lives])
        numbers = np.array([number for _, number in self.lives], np.uint64)
        return numbers[np.maximum(began.searchsorted(positions, side="right") - 1, 0)]

    def begin_life(self, number: int) -> None:
        """A server has started: what comes from now on has keys of its own. The number should be new."""
        here = self._ring.next if self._ring else 0
        kept = [life for life in self.lives if life[0] < here]
        while len(kept) > 1 and kept[1][0] <= self.first:
            kept.pop(0)
        kept = kept[-(1 << LIFE_BITS) + 1 :]
        taken = {life for _, life in kept}
        while (number := number % (1 << LIFE_BITS)) in taken:
            number += 1
        self.lives = [*kept, (here, number)]
