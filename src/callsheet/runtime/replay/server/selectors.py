"""Selectors choose which items a sample gets: uniformly, by priority, or the oldest first."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from callsheet.runtime.replay.server.item_ring import ItemRing
from callsheet.runtime.replay.server.sum_tree import SumTree

Positions = NDArray[np.int64]
Probabilities = NDArray[np.float64]
Priorities = NDArray[np.float32]


class Selector(Protocol):
    """Chooses among the items of a ring from position `first` on."""

    removes_sampled: bool
    """Whether sampling removes items."""

    def insert(self, start: int, priorities: Priorities) -> None:
        """Items were inserted; a priority of NaN stands for the largest so far."""

    def evict(self, start: int, count: int) -> None:
        """Items were evicted."""

    def total_weight(self, first: int) -> float:
        """Sum of all sampling weights; shards are sampled in proportion."""

    def sample(self, first: int, count: int) -> tuple[Positions, Probabilities]:
        """Positions, and each one's probability in a single draw."""

    def update(self, positions: Positions, priorities: Priorities) -> None:
        """Priorities have changed."""


class Uniform:
    """All items are equally likely."""

    removes_sampled = False

    def __init__(self, ring: ItemRing, rng: np.random.Generator) -> None:
        self._ring = ring
        self._rng = rng

    def insert(self, start: int, priorities: Priorities) -> None:
        """Nothing to store."""

    def evict(self, start: int, count: int) -> None:
        """Nothing to remove."""

    def total_weight(self, first: int) -> float:
        """The number of items."""
        return float(self._ring.next - first)

    def sample(self, first: int, count: int) -> tuple[Positions, Probabilities]:
        """Positions, with replacement."""
        size = self._ring.next - first
        return self._rng.integers(first, self._ring.next, count), np.full(count, 1.0 / size)

    def update(self, positions: Positions, priorities: Priorities) -> None:
        """Priorities do not matter here."""


class Fifo(Uniform):
    """A queue: the oldest items, each once."""

    removes_sampled = True

    def sample(self, first: int, count: int) -> tuple[Positions, Probabilities]:
        """The oldest positions."""
        return np.arange(first, first + count), np.ones(count)


class Prioritized:
    """An item's probability is proportional to its priority to the power of alpha."""

    removes_sampled = False

    def __init__(self, ring: ItemRing, rng: np.random.Generator, alpha: float) -> None:
        self._ring = ring
        self._rng = rng
        self._alpha = alpha
        self._tree = SumTree(ring.slots)
        self._priorities = np.zeros(ring.slots, np.float32)
        self.max_priority = 1.0
        """The largest priority so far. New items get it, so that they are sampled soon."""

    def insert(self, start: int, priorities: Priorities) -> None:
        """Store the priorities of new items."""
        if len(priorities) == 1:  # large items arrive one by one, and each NumPy call has its overhead
            self._insert_one(start % self._ring.slots, priorities.item())
            return
        given = priorities[np.isfinite(priorities)]
        if given.size:
            self.max_priority = max(self.max_priority, float(given.max()))
        known = np.where(np.isnan(priorities), np.float32(self.max_priority), priorities)
        done = 0
        for slot, length in self._ring.slot_ranges(start, len(known)):
            some = known[done : done + length]
            self._priorities[slot : slot + length] = some
            self._tree.fill(slot, slot + length, self._weights(some))
            done += length

    def _insert_one(self, slot: int, priority: float) -> None:
        if math.isnan(priority):
            priority = self.max_priority
        elif self.max_priority < priority < math.inf:
            self.max_priority = priority
        self._priorities[slot] = priority
        self._tree.fill(slot, slot + 1, priority**self._alpha if priority else 0.0)

    def evict(self, start: int, count: int) -> None:
        """Evicted items have no weight."""
        for slot, length in self._ring.slot_ranges(start, count):
            self._tree.fill(slot, slot + length, 0.0)

    def total_weight(self, first: int) -> float:
        """The sum of all weights."""
        return self._tree.total

    def sample(self, first: int, count: int) -> tuple[Positions, Probabilities]:
        """Positions, with replacement."""
        slots = self._tree.find(self._rng.random(count))
        return self._ring.position_of(slots), self._tree.weights(slots) / self._tree.total

    def update(self, positions: Positions, priorities: Priorities) -> None:
        """Update priorities."""
        if len(positions):
            self.max_priority = max(self.max_priority, float(priorities.max()))
            slots = positions % self._ring.slots
            self._priorities[slots] = priorities
            self._tree.set(slots, self._weights(priorities))

    def priorities(self, start: int, count: int) -> Priorities:
        """A copy of the priorities of consecutive positions."""
        pieces = [self._priorities[slot : slot + n] for slot, n in self._ring.slot_ranges(start, count)]
        return np.concatenate(pieces) if pieces else np.empty(0, np.float32)

    def _weights(self, priorities: Priorities) -> NDArray[np.float64]:
        weights: NDArray[np.float64] = np.power(priorities, self._alpha, dtype=np.float64)
        weights[priorities == 0] = 0.0  # even if alpha is 0
        return weights
