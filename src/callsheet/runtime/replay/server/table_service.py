"""What a server does for the clients of one table: it takes items, answers samples, and says what somebody waits for."""

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
"""Bytes of samples after which inserts have their turn."""
_NOTIFY_CHANGE = 0.05
"""A table that grew or shrank by this part is worth a word to those who sample."""


@dataclass(slots=True)
class _PendingInsert:
    """Items that may not come in yet."""

    frame: Frame
    items: dict[str, NDArray[np.generic]]
    since: float
    begun: bool = False


@dataclass(slots=True)
class _PendingSample:
    """A sample that was not answered yet."""

    peer: Peer
    count: int
    number: int
    since: float


@dataclass(slots=True)
class TableClient:
    """What is known about a client."""

    service: TableService
    samples: bool
    open_requests: int = 0
    reported_wait: str = ""
    reported_weight: float = -1.0
    knows_schema: bool = False


@dataclass
class ServiceStats:
    """What a table's service has seen; read by the metrics."""

    duplicates: int = 0
    missed: int = 0
    """Items that an earlier server had received and lost with its life."""
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
    """Up to where a sender, by name and incarnation, asked for its items to be in a snapshot."""
    _pending_inserts: deque[_PendingInsert] = field(default_factory=deque)
    _pending_samples: deque[_PendingSample] = field(default_factory=deque)

    @property
    def pending_inserts(self) -> int:
        """Messages with items that wait."""
        return len(self._pending_inserts)

    @property
    def pending_samples(self) -> int:
        """Samples that wait."""
        return len(self._pending_samples)

    @property
    def snapshot_requested(self) -> bool:
        """Whether somebody waits for a snapshot; a wish that came late may have been met by then."""
        for (name, incarnation), last in self.snapshot_requests.items():
            progress = self.delivery_log.progress(name, incarnation)
            if progress is not None and progress.durable < min(last, progress.received):
                return True
        return False

    def state(self, waiting: str = "", *, schema: bool = True) -> protocol.TableState:
        """How the table is, for a client."""
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

    def handle(self, frame: Frame, client: TableClient) -> None:
        """Deal with a message; `BadMessage` when it is not one of ours."""
        match frame.header.verb:
            case stream.ITEMS:
                self._on_items(frame, client)
            case protocol.SAMPLE:
                self._on_sample(frame, client)
            case protocol.UPDATE:
                self.table.update(*protocol.decode_update(frame.header.body, frame.header.count))
            case protocol.STATE:
                frame.peer.send(
                    Header(
                        protocol.STATE, body=protocol.encode(self.state(client.reported_wait, schema=False))
                    )
                )
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
        # The writer can change its memory at any time: what is checked must be what is used.
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
        """Take what may come in; whether that was all."""
        frame, items = pending.frame, pending.items
        first, count = frame.header.sequence, frame.header.count
        progress = self.delivery_log.sender(frame.peer.name).progress(frame.peer.incarnation)
        if first > progress.received + 1:
            self.counts.missed += first - progress.received - 1
            progress.received = first - 1
        here = min(count, progress.received - first + 1)
        if here and not pending.begun:
            self.counts.duplicates += here
        pending.begun = True
        priorities = cast("NDArray[np.float32]", items[PRIORITY])
        while here < count:
            room = self.table.insertable(count - here)
            if not room:
                return False
            self.table.insert(items, here, priorities[here : here + room])
            here += room
            progress.received = progress.consumed = first + here - 1
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
        """Say no to a sample that can never be, which may have been asked for before anybody knew what items look like."""
        no = self.table.impossible_sample(request.count)
        if no is not None:
            request.peer.refuse(*no)
        return no is not None

    def process_pending(self) -> bool:
        """Let in and answer what can be now, up to a turn's worth; whether there may be more."""
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
                    return True  # those who insert have their turn before the next large answer
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
            request.peer.send(Header(protocol.STATE, body=protocol.encode(self.state())))
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
        """A client is no longer there: what it sent and was not let in comes again, if it lives."""
        self._pending_inserts = deque(
            pending for pending in self._pending_inserts if pending.frame.peer is not peer
        )
        self._pending_samples = deque(
            request for request in self._pending_samples if request.peer is not peer
        )
        self.snapshot_requests.pop((peer.name, peer.incarnation), None)
        self.delivery_log.on_disconnect(peer.name)

    def notify(self, peers: list[Peer], patience: float) -> None:
        """Tell those who wait longer than that why, and those who sample how the table has changed."""
        late = time.monotonic() - patience
        why = {
            pending.frame.peer: self.table.why_no_insert()
            for pending in self._pending_inserts
            if pending.since < late
        }
        why |= {
            request.peer: self.table.why_no_sample(request.count)
            for request in self._pending_samples
            if request.since < late
        }
        mass = self.table.total_weight
        for peer in peers:
            client: TableClient = peer.state
            reason = why.get(peer, "")
            moved = client.samples and abs(mass - client.reported_weight) > _NOTIFY_CHANGE * max(
                mass, client.reported_weight
            )
            if reason != client.reported_wait or moved:
                client.reported_wait, client.reported_weight = reason, mass
                peer.send(Header(protocol.STATE, body=protocol.encode(self.state(reason, schema=False))))
