"""Which items a sample takes: any with equal chance, by priority, or the oldest."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from callsheet.runtime.replay.server.item_ring import Ring
from callsheet.runtime.replay.server.sum_tree import SumTree

Positions = NDArray[np.int64]
Probabilities = NDArray[np.float64]
Priorities = NDArray[np.float32]


class Picker(Protocol):
    """Chooses among the items of a ring from position `first` on."""

    consumes: bool
    """Whether an item is gone once it was sampled."""

    def added(self, start: int, priorities: Priorities) -> None:
        """Items have come; a priority that is no number stands for the largest so far."""

    def evicted(self, start: int, count: int) -> None:
        """Items have gone."""

    def mass(self, first: int) -> float:
        """How much there is to draw from: shards are sampled in proportion to it."""

    def draw(self, first: int, count: int) -> tuple[Positions, Probabilities]:
        """Positions, and the chance that each draw had to be it."""

    def update(self, positions: Positions, priorities: Priorities) -> None:
        """Priorities have changed."""


class Uniform:
    """Every item has the same chance in every draw."""

    consumes = False

    def __init__(self, ring: Ring, rng: np.random.Generator) -> None:
        self._ring = ring
        self._rng = rng

    def added(self, start: int, priorities: Priorities) -> None:
        """Nothing to remember."""

    def evicted(self, start: int, count: int) -> None:
        """Nothing to forget."""

    def mass(self, first: int) -> float:
        """The number of items."""
        return float(self._ring.next - first)

    def draw(self, first: int, count: int) -> tuple[Positions, Probabilities]:
        """Positions, with replacement."""
        size = self._ring.next - first
        return self._rng.integers(first, self._ring.next, count), np.full(count, 1.0 / size)

    def update(self, positions: Positions, priorities: Priorities) -> None:
        """Priorities do not matter here."""


class Fifo(Uniform):
    """A queue: the oldest items, each once."""

    consumes = True

    def draw(self, first: int, count: int) -> tuple[Positions, Probabilities]:
        """The oldest positions."""
        return np.arange(first, first + count), np.ones(count)


class Prioritized:
    """The chance of an item is proportional to its priority to the power of alpha."""

    consumes = False

    def __init__(self, ring: Ring, rng: np.random.Generator, alpha: float) -> None:
        self._ring = ring
        self._rng = rng
        self._alpha = alpha
        self._tree = SumTree(ring.slots)
        self._priorities = np.zeros(ring.slots, np.float32)
        self.highest = 1.0
        """The largest priority so far: what new items get, so that each is soon seen."""

    def added(self, start: int, priorities: Priorities) -> None:
        """Give new items their priorities."""
        if len(priorities) == 1:  # large items come one by one, and NumPy takes its time for each step
            self._added(start % self._ring.slots, priorities.item())
            return
        told = priorities[np.isfinite(priorities)]
        if told.size:
            self.highest = max(self.highest, float(told.max()))
        known = np.where(np.isnan(priorities), np.float32(self.highest), priorities)
        done = 0
        for slot, length in self._ring.pieces(start, len(known)):
            some = known[done : done + length]
            self._priorities[slot : slot + length] = some
            self._tree.fill(slot, slot + length, self._weights(some))
            done += length

    def _added(self, slot: int, priority: float) -> None:
        if math.isnan(priority):
            priority = self.highest
        elif self.highest < priority < math.inf:
            self.highest = priority
        self._priorities[slot] = priority
        self._tree.fill(slot, slot + 1, priority**self._alpha if priority else 0.0)

    def evicted(self, start: int, count: int) -> None:
        """Items that have gone have no weight."""
        for slot, length in self._ring.pieces(start, count):
            self._tree.fill(slot, slot + length, 0.0)

    def mass(self, first: int) -> float:
        """The sum of all weights."""
        return self._tree.total

    def draw(self, first: int, count: int) -> tuple[Positions, Probabilities]:
        """Positions, with replacement."""
        slots = self._tree.find(self._rng.random(count))
        return self._ring.position_of(slots), self._tree.weights(slots) / self._tree.total

    def update(self, positions: Positions, priorities: Priorities) -> None:
        """Give items new priorities."""
        if len(positions):
            self.highest = max(self.highest, float(priorities.max()))
            slots = positions % self._ring.slots
            self._priorities[slots] = priorities
            self._tree.set(slots, self._weights(priorities))

    def priorities(self, start: int, count: int) -> Priorities:
        """A copy of the priorities of neighboring positions."""
        pieces = [self._priorities[slot : slot + n] for slot, n in self._ring.pieces(start, count)]
        return np.concatenate(pieces) if pieces else np.empty(0, np.float32)

    def _weights(self, priorities: Priorities) -> NDArray[np.float64]:
        weights: NDArray[np.float64] = np.power(priorities, self._alpha, dtype=np.float64)
        weights[priorities == 0] = 0.0  # also where alpha is 0
        return weights
