"""The writer's end of a replay: a lane to each shard, with the priority of each item beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.runtime.context import Context
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.link.protocol import Header, Welcome
from callsheet.runtime.replay import protocol
from callsheet.runtime.replay.config import PRIORITY, insert_schema
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline
from callsheet.runtime.stream.balanced_sender import Spread
from callsheet.runtime.stream.durable_sender import DurableLane
from callsheet.runtime.stream.sender import Lane

_HIGHEST = np.float32(np.nan)
"""Stands for the largest priority so far."""
_PATIENCE = 0.25
"""Seconds between two wishes for a snapshot."""


class Receipt(NamedTuple):
    """Where an item went."""

    shard: str
    """The shard's address."""
    sequence: int
    """The item's number among those that this client sent there; it is durable when `durable[shard]` has reached it."""


class ReplayLane(Lane):
    """A lane to one shard."""

    table = ""
    waiting = ""
    """What the shard says that inserts wait for."""
    purpose = protocol.WRITE

    def put_some(self, items: Mapping[str, NDArray[np.generic]], start: int, timeout: float | None) -> int:
        """Take items from the one numbered `start` on, as many as go into one frame: each array has them along its
        first axis. How many."""
        with self._lock:
            if self._slots is None:
                self._begin({name: array[0] for name, array in items.items()}, self._version, timeout)
            assert self._slots is not None
            assert self.packing is not None
            at = self._count
            count = min(len(items[PRIORITY]) - start, self.packing.capacity - at)
            for view, name, _, _ in self._slots:
                view[at : at + count] = items[name][start : start + count]
            self._count += count
            self.sequence += count
            if self._count == self.packing.capacity or self._delivered():
                self._finish()
            if self._flusher.resting:
                self._flusher.wake()
            return count

    def heard(self) -> ReplayLane:
        """Itself, after a look at what the shard has said."""
        self.poll()
        return self

    def _hello(self) -> bytes:
        return protocol.encode(protocol.Want(self.purpose, self.table))

    def _up(self, welcome: Welcome) -> None:
        self.waiting = ""
        super()._up(welcome)

    def _told(self, frame: Frame) -> None:
        if frame.header.verb == protocol.STATE:
            self.waiting = protocol.state_of(frame.header.body).waiting
        else:
            super()._told(frame)


class DurableReplayLane(ReplayLane, DurableLane):
    """A lane to one shard that keeps items until a snapshot has them; asks for one when its memory runs full."""

    purpose = protocol.WRITE_DURABLY
    _hurry = False
    """Whether somebody waits for a snapshot."""
    _wished = 0.0

    def flush(self, timeout: float | None = None, *, durable: bool = False) -> None:
        """Wait until the shard has all that was put in, or until a snapshot has it, which is asked for."""
        deadline = Deadline(timeout)
        super().flush(timeout)
        if durable and self.durable < self.sequence:
            try:
                with self._lock:
                    self._hurry, self._wished = True, 0.0
                    self._push()
                super().flush(deadline.timeout, durable=True)
            finally:
                self._hurry = False

    def _push(self) -> None:
        super()._push()
        item = self.packing.nbytes / self.packing.capacity if self.packing else 0
        if (
            self._hurry or (self.sequence - self.durable) * item > self._ring.size / 2
        ) and time.monotonic() - self._wished > _PATIENCE:
            self._wished = time.monotonic()
            self.link.send(Header(protocol.STORE, sequence=self.sequence))


class Inserting:
    """Inserts into all shards of a replay, in turn, a frame at a time."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        table: str,
        schema: Schema | None,
        *,
        window: int,
        keep: int | None,
    ) -> None:
        self._items = schema
        wire = insert_schema(schema) if schema else None

        def lane(address: str, schema: Schema | None) -> Lane:
            where = (context, endpoint, protocol.SERVICE)
            made: ReplayLane
            if keep is None:
                made = ReplayLane(*where, schema=schema, address=address, window=window)
            else:
                made = DurableReplayLane(*where, schema=schema, address=address, window=window, keep=keep)
            made.table = table
            return made

        self._spread = Spread(context, endpoint, wire, lane)

    @property
    def lanes(self) -> dict[str, ReplayLane]:
        """To the shards, by their addresses."""
        return {to: lane for to, lane in self._spread.lanes.items() if isinstance(lane, ReplayLane)}

    def put(self, arrays: Mapping[str, object], priority: float | None, timeout: float | None) -> Receipt:
        """One item."""
        if priority is None:
            item = {**arrays, PRIORITY: _HIGHEST}
        else:
            item = {**arrays, PRIORITY: np.float32(checked(priority))}
        deadline = Deadline(timeout)
        try:
            lane = self._spread.choose(item, timeout)
            return Receipt(lane.link.address, lane.put(item, 0, deadline.timeout))
        except TimedOut as error:
            raise self._why(error) from None

    def put_many(
        self, arrays: Mapping[str, NDArray[np.generic]], priorities: object, timeout: float | None
    ) -> None:
        """Items along the first axis of each array."""
        lengths = sorted({len(array) for array in arrays.values()})
        if len(lengths) != 1:
            raise UserError(
                f"the arrays have {lengths} items along their first axes", fix="give each as many"
            )
        count = lengths[0]
        if not count:
            return
        one = {name: array[0] for name, array in arrays.items()}
        if self._items is None:
            self._items = Schema.of(one)
        self._items.check(one)
        known = np.full(count, _HIGHEST) if priorities is None else checked_many(priorities, count)
        items = {**arrays, PRIORITY: known}
        deadline, done = Deadline(timeout), 0
        try:
            while done < count:
                lane = self._spread.choose({**one, PRIORITY: _HIGHEST}, deadline.timeout)
                assert isinstance(lane, ReplayLane)
                done += lane.put_some(items, done, deadline.timeout)
        except TimedOut as error:
            raise self._why(error) from None

    def flush(self, timeout: float | None, *, durable: bool) -> None:
        """Wait until the shards have everything, or until it is durable there."""
        deadline = Deadline(timeout)
        try:
            for lane in self.lanes.values():
                lane.flush(deadline.timeout, durable=durable)
        except TimedOut as error:
            raise self._why(error) from None

    def counts(self) -> dict[str, float]:
        """How it is going, in numbers."""
        return self._spread.counts()

    def close(self, timeout: float | None) -> None:
        """Hand over what is left, and end."""
        self._spread.close(timeout)

    def _why(self, error: TimedOut) -> TimedOut:
        said = sorted({lane.waiting for lane in self.lanes.values() if lane.waiting})
        return TimedOut(f"{error.message}; {'; '.join(said)}", fix=error.fix) if said else error


def checked(priority: float) -> float:
    """A priority that an item can have."""
    if not 0 <= priority <= protocol.LARGEST_PRIORITY:
        raise UserError(
            f"{priority} cannot be a priority", fix=f"priorities go from 0 to {protocol.LARGEST_PRIORITY:g}"
        )
    return priority


def checked_many(priorities: object, count: int) -> NDArray[np.float32]:
    """Priorities that items can have."""
    found = np.asarray(priorities, np.float32)
    if found.shape != (count,):
        raise UserError(f"{count} items have priorities of the shape {found.shape}", fix="give each one")
    wrong = found[~((found >= 0) & (found <= protocol.LARGEST_PRIORITY))]
    if wrong.size:
        checked(float(wrong[0]))
    return found
