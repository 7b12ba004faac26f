"""Serves the clients of one table: inserts items, answers sample requests, and reports what clients wait for."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.peer import Peer
from callsheet.runtime.link.protocol import NO_BLOCK, BadMessage, Header
from callsheet.runtime.replay import protocol
from callsheet.runtime.replay.config import PRIORITY, items_of
from callsheet.runtime.replay.server.table import LiveTable
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream import sender as stream
from callsheet.runtime.stream.delivery_log import MAX_SEQUENCE, DeliveryLog
from callsheet.runtime.stream.packing import MAX_ITEMS

_SAMPLE_TURN_BYTES = 1 << 20
"""Bytes of samples after which inserts get their turn."""
_NOTIFY_CHANGE = 0.05
"""Clients that sample are notified when the total weight has changed by this fraction."""


@dataclass(slots=True)
class _PendingInsert:
    """Items that may not be inserted yet."""

    frame: Frame
    items: dict[str, NDArray[np.generic]]
    since: float
    begun: bool = False


@dataclass(slots=True)
class _PendingSample:
    """A sample request without an answer."""

    peer: Peer
    count: int
    number: int
    since: float


@dataclass(slots=True)
class TableClient:
    """What the server knows about a client."""

    service: TableService
    samples: bool
    open_requests: int = 0
    reported_wait: str = ""
    reported_weight: float = -1.0
    knows_schema: bool = False


@dataclass
class ServiceStats:
    """Counters of a table's service, read by the metrics."""

    duplicates: int = 0
    missed: int = 0
    """Items that an earlier server had received and lost."""
    insert_wait: float = 0.0
    sample_wait: float = 0.0
    requests: int = 0


@dataclass
class TableService:
    """One table and its clients."""

    table: LiveTable
    delivery_log: DeliveryLog = field(default_factory=DeliveryLog)
    counts: ServiceStats = field(default_factory=ServiceStats)
    snapshot_requests: dict[tuple[str, int], int] = field(default_factory=dict)
    """For a sender's (name, incarnation): the last item it wants in a snapshot."""
    _pending_inserts: deque[_PendingInsert] = field(default_factory=deque)
    _pending_samples: deque[_PendingSample] = field(default_factory=deque)

    @property
    def pending_inserts(self) -> int:
        """Messages with items that wait."""
        return len(self._pending_inserts)

    @property
    def pending_samples(self) -> int:
        """Sample requests that wait."""
        return len(self._pending_samples)

    @property
    def snapshot_requested(self) -> bool:
        """Whether a client waits for a snapshot; a late request may already be met."""
        for (name, incarnation), last in self.snapshot_requests.items():
            progress = self.delivery_log.progress(name, incarnation)
            if progress is not None and progress.durable < min(last, progress.received):
                return True
        return False

    def state(self, waiting: str = "", *, schema: bool = True) -> protocol.TableState:
        """The table's state, for a client."""
        table = self.table
        known = table.schema
        return protocol.TableState(
            table.size,
            table.total_weight,
            waiting,
            known.encoded if known and schema else b"",
            table.ring.capacity if known else 0,
            table.options.kind == "fifo",
            table.size >= table.limiter.min_size,
        )

    def _send_state(self, peer: Peer, waiting: str = "", *, schema: bool = False) -> None:
        peer.send(Header(protocol.STATE, body=protocol.encode(self.state(waiting, schema=schema))))

    def handle(self, frame: Frame, client: TableClient) -> None:
        """Process a message; `BadMessage` if it is invalid."""
        match frame.header.verb:
            case stream.ITEMS:
                self._on_items(frame, client)
            case protocol.SAMPLE:
                self._on_sample(frame, client)
            case protocol.UPDATE:
                self.table.update(*protocol.decode_update(frame.header.body, frame.header.count))
            case protocol.STATE:
                self._send_state(frame.peer, client.reported_wait)
            case protocol.REQUEST_SNAPSHOT:
                self.snapshot_requests[frame.peer.name, frame.peer.incarnation] = frame.header.sequence
            case verb:
                raise BadMessage(f"verb {verb}")

    def _on_items(self, frame: Frame, client: TableClient) -> None:
        header, schema = frame.header, self.table.writer_schema or frame.peer.schema
        if client.samples or schema is None or frame.block == NO_BLOCK or not 0 < header.count <= MAX_ITEMS:
            raise BadMessage(f"{header.count} items")
        if not 0 < header.sequence <= MAX_SEQUENCE - header.count:
            raise BadMessage(f"an item with the number {header.sequence}")
        items = frame.arrays(schema)
        # The writer can change its memory at any time: use what was checked.
        items[PRIORITY] = priorities = items[PRIORITY].copy()
        protocol.check_priorities(cast("NDArray[np.float32]", priorities))
        if self.table.writer_schema is None:
            self._allocate(schema)
        pending = _PendingInsert(frame, items, time.monotonic())
        if self._pending_inserts or not self._try_insert(pending):
            self._pending_inserts.append(pending)

    def _allocate(self, schema: Schema) -> None:
        try:
            self.table.allocate(items_of(schema))
        except (UserError, ValueError, MemoryError) as error:
            raise BadMessage(f"items for which there is no table: {error}") from None
        for request in list(self._pending_samples):
            self._refuse_impossible(request)

    def _try_insert(self, pending: _PendingInsert) -> bool:
        """Insert as many items as allowed; return whether those were all."""
        frame, items = pending.frame, pending.items
        first, count = frame.header.sequence, frame.header.count
        progress = self.delivery_log.sender(frame.peer.name).progress(frame.peer.incarnation)
        if first > progress.received + 1:
            self.counts.missed += first - progress.received - 1
            progress.received = first - 1
        inserted = min(count, progress.received - first + 1)
        if inserted and not pending.begun:
            self.counts.duplicates += inserted
        pending.begun = True
        priorities = cast("NDArray[np.float32]", items[PRIORITY])
        while inserted < count:
            room = self.table.insertable(count - inserted)
            if not room:
                return False
            self.table.insert(items, inserted, priorities[inserted : inserted + room])
            inserted += room
            progress.received = progress.consumed = first + inserted - 1
        items.clear()
        frame.release()
        return True

    def _on_sample(self, frame: Frame, client: TableClient) -> None:
        count = frame.header.count
        if not 0 < count <= protocol.MAX_SAMPLE_ITEMS:
            raise BadMessage(f"a wish for {count} items")
        if client.open_requests >= protocol.MAX_REQUESTS:
            raise BadMessage(f"more than {protocol.MAX_REQUESTS} wishes at a time")
        if not frame.peer.alive:
            return  # nobody would take the answer, and others would wait behind it
        request = _PendingSample(frame.peer, count, frame.header.sequence, time.monotonic())
        if self._refuse_impossible(request):
            return
        client.open_requests += 1
        self.counts.requests += 1
        self._pending_samples.append(request)

    def _refuse_impossible(self, request: _PendingSample) -> bool:
        """Refuse a request that can never be met; it may have been sent before the schema was known."""
        problem = self.table.impossible_sample(request.count)
        if problem is not None:
            request.peer.refuse(*problem)
        return problem is not None

    def process_pending(self) -> bool:
        """Insert and answer what is possible now, up to a turn's worth; return whether there may be more."""
        moved, left = True, _SAMPLE_TURN_BYTES
        while moved and (self._pending_inserts or self._pending_samples):
            moved = False
            while self._pending_inserts:
                pending, before = self._pending_inserts.popleft(), self.table.counts.inserted
                done = self._try_insert(pending)
                moved = moved or done or self.table.counts.inserted > before
                if not done:
                    self._pending_inserts.appendleft(pending)
                    break
                self.counts.insert_wait += time.monotonic() - pending.since
            for _ in range(len(self._pending_samples)):
                if not self._pending_samples or not self.table.can_sample(self._pending_samples[0].count):
                    break
                if left <= 0:
                    return True  # inserts get their turn before the next large answer
                request = self._pending_samples.popleft()
                if self._send_sample(request):
                    moved = True
                    left -= request.count * self.table.item_bytes
                elif request.peer.alive:
                    self._pending_samples.append(request)  # all of its blocks are in flight: others first
        return False

    def _send_sample(self, request: _PendingSample) -> bool:
        schema = self.table.sample_schema
        assert schema is not None, "a table that may be sampled has a schema"
        layout = schema.layout(request.count)
        client: TableClient = request.peer.state
        if not client.knows_schema:
            client.knows_schema = True
            self._send_state(request.peer, schema=True)
        block = request.peer.reserve(layout.nbytes) if request.peer.alive else None
        if block is None:
            return False
        self.table.sample(request.count, layout.views(block.view))
        client.open_requests -= 1
        client.reported_weight, client.reported_wait = self.table.total_weight, ""
        self.counts.sample_wait += time.monotonic() - request.since
        body = protocol.encode(self.state(schema=False))
        header = Header(protocol.SAMPLE, schema.hash, request.count, request.number, body=body)
        return request.peer.send(header, block, layout.nbytes)

    def on_disconnect(self, peer: Peer) -> None:
        """A client has disconnected; it resends what was not inserted, if it lives."""
        self._pending_inserts = deque(one for one in self._pending_inserts if one.frame.peer is not peer)
        self._pending_samples = deque(one for one in self._pending_samples if one.peer is not peer)
        self.snapshot_requests.pop((peer.name, peer.incarnation), None)
        self.delivery_log.on_disconnect(peer.name)

    def notify(self, peers: list[Peer], patience: float) -> None:
        """Tell clients that wait longer than `patience` why, and clients that sample how the table has changed."""
        late = time.monotonic() - patience
        inserts = [pending for pending in self._pending_inserts if pending.since < late]
        samples = [request for request in self._pending_samples if request.since < late]
        reasons = {pending.frame.peer: self.table.why_no_insert() for pending in inserts}
        reasons |= {request.peer: self.table.why_no_sample(request.count) for request in samples}
        weight = self.table.total_weight
        for peer in peers:
            client: TableClient = peer.state
            reason, reported = reasons.get(peer, ""), client.reported_weight
            changed = client.samples and abs(weight - reported) > _NOTIFY_CHANGE * max(weight, reported)
            if reason != client.reported_wait or changed:
                client.reported_wait, client.reported_weight = reason, weight
                self._send_state(peer, reason)
