"""The recurrent states of all clients' environments, in a few large arrays, read and written with one call each.

A disconnected client keeps its states and last answers for a while. So a request that it resends is answered from
memory and not computed twice, which would advance the state twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from callsheet.runtime.link.blocks import Block
from callsheet.runtime.schema import FrameLayout, Schema

KEEP_SECONDS: Final = 30.0
"""Seconds to keep the states of a disconnected client."""
MAX_STATES: Final = 1 << 16


class StatesFull(Exception):
    """All slots are in use."""


@dataclass(eq=False, slots=True)
class Lane:
    """One client's lane: one request at a time, and the states of its environments."""

    sequence: int = 0
    """Sequence number of the last answered request."""
    version: int = 0
    busy: bool = False
    """Whether one of its requests is in the current batch."""
    slots: np.ndarray | None = None


@dataclass(eq=False, slots=True)
class ClientRecord:
    """One client, even while it is disconnected."""

    name: str
    incarnation: int
    lanes: dict[int, Lane] = field(default_factory=dict)
    gone_since: float = 0.0
    """When the connection was lost; 0 while connected."""
    views: dict[int, tuple[object, FrameLayout, dict[str, np.ndarray]]] = field(default_factory=dict)

    def views_of(self, block: Block, layout: FrameLayout) -> dict[str, np.ndarray]:
        """The arrays in a block of answers, cached as long as block and layout stay the same."""
        cached = self.views.get(block.index)
        if cached is None or cached[0] is not block.memory or cached[1] is not layout:
            cached = self.views[block.index] = (block.memory, layout, layout.views(block.view))
        return cached[2]

    def lane(self, number: int) -> Lane:
        """A lane by its number."""
        cached = self.lanes.get(number)
        if cached is None:
            cached = self.lanes[number] = Lane()
        return cached


class RecurrentStates:
    """States and last answers, by slot."""

    def __init__(self, initial: Mapping[str, object], answers: Schema, limit: int = MAX_STATES) -> None:
        self.limit = limit
        self.used = 0
        self._state_schema = Schema.of(initial)
        self._initial = {name: np.asarray(value) for name, value in initial.items()}
        self._answer_schema = answers
        self._state_arrays: dict[str, np.ndarray] = {}
        self._answer_arrays: dict[str, np.ndarray] = {}
        self._free: list[int] = []
        self._size = 0

    @property
    def schema(self) -> Schema:
        """Schema of one environment's state."""
        return self._state_schema

    def allocate(self, count: int) -> np.ndarray:
        """Allocate slots in their initial state."""
        if self.used + count > self.limit:
            raise StatesFull(f"the states of {self.limit:,} environments are kept already")
        while len(self._free) < count:
            self._grow()
        self.used += count
        taken = np.array([self._free.pop() for _ in range(count)])
        for name, value in self._initial.items():
            self._state_arrays[name][taken] = value
        return taken

    def free(self, slots: np.ndarray) -> None:
        """Free slots."""
        self.used -= len(slots)
        self._free.extend(int(slot) for slot in slots)

    def _grow(self) -> None:
        size = max(64, 2 * self._size)
        for schema, arrays in (
            (self._state_schema, self._state_arrays),
            (self._answer_schema, self._answer_arrays),
        ):
            for spec in schema.fields:
                larger = np.zeros((size, *(n or 0 for n in spec.shape)), spec.dtype)
                if self._size:
                    larger[: self._size] = arrays[spec.name]
                arrays[spec.name] = larger
        self._free.extend(range(size - 1, self._size - 1, -1))
        self._size = size

    def gather(self, slots: np.ndarray, into: dict[str, np.ndarray], reset: np.ndarray | None) -> None:
        """Copy the states of these slots, or the initial state where `reset` is true."""
        for name, target in into.items():
            np.take(self._state_arrays[name], slots, axis=0, out=target, mode="clip")
            if reset is not None:
                target[reset] = self._initial[name]

    def store(
        self, slots: np.ndarray, states: Mapping[str, np.ndarray], answers: Mapping[str, np.ndarray]
    ) -> None:
        """Store the states for the next request, and the answers in case the request is resent."""
        for name, value in states.items():
            self._state_arrays[name][slots] = value
        for name, value in answers.items():
            self._answer_arrays[name][slots] = value

    def answers(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """The last answers of these slots."""
        return {name: array[slots] for name, array in self._answer_arrays.items()}


class ClientRegistry:
    """All clients by name."""

    def __init__(self, slots: RecurrentStates | None) -> None:
        self._slots = slots
        self._by_name: dict[str, ClientRecord] = {}
        self.connected = 0

    def connect(self, name: str, incarnation: int) -> ClientRecord:
        """The client of a new connection, with its states if it is the same process."""
        client = self._by_name.get(name)
        if client is None or client.incarnation != incarnation:
            if client is not None:
                self._forget(client)
            client = self._by_name[name] = ClientRecord(name, incarnation)
        client.gone_since = 0.0
        self.connected += 1
        return client

    def disconnect(self, client: ClientRecord) -> None:
        """Its connection is gone."""
        self.connected -= 1
        client.gone_since = time.monotonic()
        client.views.clear()
        if not any(lane.slots is not None for lane in client.lanes.values()):
            self._forget(client)

    def evict_disconnected(self) -> bool:
        """Forget the client that has been disconnected the longest; return whether there was one."""
        gone = [client for client in self._by_name.values() if client.gone_since]
        if gone:
            self._forget(min(gone, key=lambda client: client.gone_since))
        return bool(gone)

    def expire(self) -> None:
        """Forget clients that did not reconnect in time."""
        before = time.monotonic() - KEEP_SECONDS
        for client in [client for client in self._by_name.values() if 0 < client.gone_since < before]:
            self._forget(client)

    def _forget(self, client: ClientRecord) -> None:
        if self._by_name.get(client.name) is client:
            del self._by_name[client.name]
        for lane in client.lanes.values():
            if lane.slots is not None and self._slots is not None:
                self._slots.free(lane.slots)
                lane.slots = None
