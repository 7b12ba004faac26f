"""Inserts into a replay: a sender per shard; each item travels with its priority."""

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
from callsheet.runtime.stream.balanced_sender import BalancedSender
from callsheet.runtime.stream.durable_sender import DurableSender
from callsheet.runtime.stream.sender import StreamSender

_MAX_SO_FAR = np.float32(np.nan)
"""Stands for the largest priority so far."""
_REQUEST_EVERY = 0.25
"""Seconds between two requests for a snapshot."""


class Receipt(NamedTuple):
    """Where an item went."""

    shard: str
    """The shard's address."""
    sequence: int
    """The item's sequence number at this shard; the item is durable once `durable[shard]` reaches it."""


class ShardSender(StreamSender):
    """Sends items to one shard."""

    table = ""
    waiting = ""
    """What inserts wait for, as reported by the shard."""
    purpose = protocol.WRITE

    def put_batch(self, items: Mapping[str, NDArray[np.generic]], start: int, timeout: float | None) -> int:
        """Send items from number `start` on, stacked along the first axis of each array, as many as fit into one
        frame; return how many."""
        with self._lock:
            if self._views is None:
                self._open_frame({name: array[0] for name, array in items.items()}, self._version, timeout)
            assert self._views is not None
            assert self.packer is not None
            at = self._count
            count = min(len(items[PRIORITY]) - start, self.packer.capacity - at)
            for view, name, _, _ in self._views:
                view[at : at + count] = items[name][start : start + count]
            self._count += count
            self.sequence += count
            if self._count == self.packer.capacity or self._delivered():
                self._close_frame()
            if self._flusher.idle:
                self._flusher.wake()
            return count

    def polled(self) -> ShardSender:
        """Return itself, after processing the shard's messages."""
        self.poll()
        return self

    def _hello(self) -> bytes:
        return protocol.encode(protocol.TableRequest(self.purpose, self.table))

    def _on_connect(self, welcome: Welcome) -> None:
        self.waiting = ""
        super()._on_connect(welcome)

    def _on_data(self, frame: Frame) -> None:
        if frame.header.verb == protocol.STATE:
            self.waiting = protocol.decode_table_state(frame.header.body).waiting
        else:
            super()._on_data(frame)


class DurableShardSender(ShardSender, DurableSender):
    """Keeps items until a snapshot has them; requests a snapshot when its buffer runs full."""

    purpose = protocol.WRITE_DURABLY
    _waiting_for_snapshot = False
    """Whether a call waits for a snapshot."""
    _requested_at = 0.0

    def flush(self, timeout: float | None = None, *, durable: bool = False) -> None:
        """Wait until the shard has everything, or request a snapshot and wait for it."""
        deadline = Deadline(timeout)
        super().flush(timeout)
        if durable and self.durable < self.sequence:
            try:
                with self._lock:
                    self._waiting_for_snapshot, self._requested_at = True, 0.0
                    self._send_pending()
                super().flush(deadline.timeout, durable=True)
            finally:
                self._waiting_for_snapshot = False

    def _send_pending(self) -> None:
        super()._send_pending()
        item = self.packer.nbytes / self.packer.capacity if self.packer else 0
        if (
            self._waiting_for_snapshot or (self.sequence - self.durable) * item > self._buffer.size / 2
        ) and time.monotonic() - self._requested_at > _REQUEST_EVERY:
            self._requested_at = time.monotonic()
            self.link.send(Header(protocol.REQUEST_SNAPSHOT, sequence=self.sequence))


class Inserter:
    """Inserts into all shards of a replay, round robin, a frame at a time."""

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
        writer_schema = insert_schema(schema) if schema else None

        def sender(address: str, schema: Schema | None) -> StreamSender:
            where = (context, endpoint, protocol.SERVICE)
            new_sender: ShardSender
            if keep is None:
                new_sender = ShardSender(*where, schema=schema, address=address, window=window)
            else:
                new_sender = DurableShardSender(
                    *where, schema=schema, address=address, window=window, keep=keep
                )
            new_sender.table = table
            return new_sender

        self._balancer = BalancedSender(context, endpoint, writer_schema, sender)

    @property
    def senders(self) -> dict[str, ShardSender]:
        """The senders to the shards, by address."""
        return {
            to: sender for to, sender in self._balancer.senders.items() if isinstance(sender, ShardSender)
        }

    def put(self, arrays: Mapping[str, object], priority: float | None, timeout: float | None) -> Receipt:
        """Insert one item."""
        if priority is None:
            item = {**arrays, PRIORITY: _MAX_SO_FAR}
        else:
            item = {**arrays, PRIORITY: np.float32(check_priority(priority))}
        deadline = Deadline(timeout)
        try:
            sender = self._balancer.choose(item, timeout)
            return Receipt(sender.link.address, sender.put(item, 0, deadline.timeout))
        except TimedOut as error:
            raise self._with_reason(error) from None

    def put_many(
        self, arrays: Mapping[str, NDArray[np.generic]], priorities: object, timeout: float | None
    ) -> None:
        """Insert items stacked along the first axis of each array."""
        lengths = sorted({len(array) for array in arrays.values()})
        if len(lengths) != 1:
            raise UserError(
                f"the arrays have {lengths} items along their first axes", fix="give all the same number"
            )
        count = lengths[0]
        if not count:
            return
        one = {name: array[0] for name, array in arrays.items()}
        if self._items is None:
            self._items = Schema.of(one)
        self._items.check(one)
        known = np.full(count, _MAX_SO_FAR) if priorities is None else as_priorities(priorities, count)
        items = {**arrays, PRIORITY: known}
        deadline, done = Deadline(timeout), 0
        try:
            while done < count:
                sender = self._balancer.choose({**one, PRIORITY: _MAX_SO_FAR}, deadline.timeout)
                assert isinstance(sender, ShardSender)
                done += sender.put_batch(items, done, deadline.timeout)
        except TimedOut as error:
            raise self._with_reason(error) from None

    def flush(self, timeout: float | None, *, durable: bool) -> None:
        """Wait until the shards have everything, or until it is durable there."""
        deadline = Deadline(timeout)
        try:
            for sender in self.senders.values():
                sender.flush(deadline.timeout, durable=durable)
        except TimedOut as error:
            raise self._with_reason(error) from None

    def counts(self) -> dict[str, float]:
        """Counters for the metrics."""
        return self._balancer.counts()

    def close(self, timeout: float | None) -> None:
        """Deliver what is left, and close."""
        self._balancer.close(timeout)

    def _with_reason(self, error: TimedOut) -> TimedOut:
        reasons = sorted({sender.waiting for sender in self.senders.values() if sender.waiting})
        return TimedOut(f"{error.message}; {'; '.join(reasons)}", fix=error.fix) if reasons else error


def check_priority(priority: float) -> float:
    """Check a priority."""
    if not 0 <= priority <= protocol.MAX_PRIORITY:
        raise UserError(
            f"{priority} is not a valid priority", fix=f"priorities go from 0 to {protocol.MAX_PRIORITY:g}"
        )
    return priority


def as_priorities(priorities: object, count: int) -> NDArray[np.float32]:
    """Check priorities, as an array."""
    array = np.asarray(priorities, np.float32)
    if array.shape != (count,):
        raise UserError(f"priorities for {count} items have the shape {array.shape}", fix="pass one per item")
    wrong = array[~((array >= 0) & (array <= protocol.MAX_PRIORITY))]
    if wrong.size:
        check_priority(float(wrong[0]))
    return array
