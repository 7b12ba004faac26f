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
from callsheet.runtime.stream.delivery_log import LARGEST, Ledger
from callsheet.runtime.stream.packing import MOST_ITEMS

_TURN = 1 << 20
"""Bytes of samples after which inserts have their turn."""
_CHANGED = 0.05
"""A table that grew or shrank by this part is worth a word to those who sample."""


@dataclass(slots=True)
class _Held:
    """Items that may not come in yet."""

    frame: Frame
    items: dict[str, NDArray[np.generic]]
    since: float
    begun: bool = False


@dataclass(slots=True)
class _Ask:
    """A sample that was not answered yet."""

    peer: Peer
    count: int
    number: int
    since: float


@dataclass(slots=True)
class Guest:
    """What is known about a client."""

    service: Service
    samples: bool
    asking: int = 0
    told: str = ""
    mass: float = -1.0
    schema: bool = False


@dataclass
class Counts:
    """What a table's service has seen; read by the metrics."""

    duplicates: int = 0
    missed: int = 0
    """Items that an earlier server had received and lost with its life."""
    insert_wait: float = 0.0
    sample_wait: float = 0.0
    requests: int = 0


@dataclass
class Service:
    """One table and its clients."""

    table: LiveTable
    ledger: Ledger = field(default_factory=Ledger)
    counts: Counts = field(default_factory=Counts)
    wishes: dict[tuple[str, int], int] = field(default_factory=dict)
    """Up to where a sender, by name and incarnation, asked for its items to be in a snapshot."""
    _held: deque[_Held] = field(default_factory=deque)
    _asks: deque[_Ask] = field(default_factory=deque)

    @property
    def held(self) -> int:
        """Messages with items that wait."""
        return len(self._held)

    @property
    def asked(self) -> int:
        """Samples that wait."""
        return len(self._asks)

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for a snapshot; a wish that came late may have been met by then."""
        for (name, incarnation), last in self.wishes.items():
            track = self.ledger.track(name, incarnation)
            if track is not None and track.durable < min(last, track.taken):
                return True
        return False

    def state(self, waiting: str = "", *, schema: bool = True) -> protocol.State:
        """How the table is, for a client."""
        table = self.table
        known = table.schema
        return protocol.State(
            table.size,
            table.mass,
            waiting,
            known.encoded if known and schema else b"",
            table.ring.capacity if known else 0,
            table.options.kind == "fifo",
            table.size >= table.limiter.min_size,
        )

    def take(self, frame: Frame, guest: Guest) -> None:
        """Deal with a message; `BadMessage` when it is not one of ours."""
        match frame.header.verb:
            case stream.ITEMS:
                self._insert(frame, guest)
            case protocol.SAMPLE:
                self._ask(frame, guest)
            case protocol.UPDATE:
                self.table.update(*protocol.update_of(frame.header.body, frame.header.count))
            case protocol.STATE:
                frame.peer.send(
                    Header(protocol.STATE, body=protocol.encode(self.state(guest.told, schema=False)))
                )
            case protocol.STORE:
                self.wishes[frame.peer.name, frame.peer.incarnation] = frame.header.sequence
            case verb:
                raise BadMessage(f"verb {verb}")

    def _insert(self, frame: Frame, guest: Guest) -> None:
        header, schema = frame.header, self.table.takes or frame.peer.schema
        if guest.samples or schema is None or frame.block == NO_BLOCK or not 0 < header.count <= MOST_ITEMS:
            raise BadMessage(f"{header.count} items")
        if not 0 < header.sequence <= LARGEST - header.count:
            raise BadMessage(f"an item with the number {header.sequence}")
        items = frame.arrays(schema)
        # The writer can change its memory at any time: what is checked must be what is used.
        items[PRIORITY] = priorities = items[PRIORITY].copy()
        protocol.check_priorities(cast("NDArray[np.float32]", priorities))
        if self.table.takes is None:
            self._adopt(schema)
        one = _Held(frame, items, time.monotonic())
        if self._held or not self._let_in(one):
            self._held.append(one)

    def _adopt(self, schema: Schema) -> None:
        try:
            self.table.adopt(items_of(schema))
        except (UserError, ValueError, MemoryError) as error:
            raise BadMessage(f"items for which there is no table: {error}") from None
        for ask in list(self._asks):
            self._refused(ask)

    def _let_in(self, one: _Held) -> bool:
        """Take what may come in; whether that was all."""
        frame, items = one.frame, one.items
        first, count = frame.header.sequence, frame.header.count
        track = self.ledger.sender(frame.peer.name).track(frame.peer.incarnation)
        if first > track.taken + 1:
            self.counts.missed += first - track.taken - 1
            track.taken = first - 1
        here = min(count, track.taken - first + 1)
        if here and not one.begun:
            self.counts.duplicates += here
        one.begun = True
        priorities = cast("NDArray[np.float32]", items[PRIORITY])
        while here < count:
            room = self.table.room(count - here)
            if not room:
                return False
            self.table.insert(items, here, priorities[here : here + room])
            here += room
            track.taken = track.read = first + here - 1
        items.clear()
        frame.release()
        return True

    def _ask(self, frame: Frame, guest: Guest) -> None:
        count = frame.header.count
        if not 0 < count <= protocol.MOST_SAMPLED:
            raise BadMessage(f"a wish for {count} items")
        if guest.asking >= protocol.MOST_ASKED:
            raise BadMessage(f"more than {protocol.MOST_ASKED} wishes at a time")
        if not frame.peer.alive:
            return  # nobody would take the answer, and others would wait behind it
        ask = _Ask(frame.peer, count, frame.header.sequence, time.monotonic())
        if self._refused(ask):
            return
        guest.asking += 1
        self.counts.requests += 1
        self._asks.append(ask)

    def _refused(self, ask: _Ask) -> bool:
        """Say no to a sample that can never be, which may have been asked for before anybody knew what items look like."""
        no = self.table.never_sampled(ask.count)
        if no is not None:
            ask.peer.refuse(*no)
        return no is not None

    def pump(self) -> bool:
        """Let in and answer what can be now, up to a turn's worth; whether there may be more."""
        moved, left = True, _TURN
        while moved and (self._held or self._asks):
            moved = False
            while self._held:
                one, before = self._held.popleft(), self.table.counts.inserted
                done = self._let_in(one)
                moved = moved or done or self.table.counts.inserted > before
                if not done:
                    self._held.appendleft(one)
                    break
                self.counts.insert_wait += time.monotonic() - one.since
            for _ in range(len(self._asks)):
                if not self._asks or not self.table.may_sample(self._asks[0].count):
                    break
                if left <= 0:
                    return True  # those who insert have their turn before the next large answer
                ask = self._asks.popleft()
                if self._answer(ask):
                    moved = True
                    left -= ask.count * self.table.item_bytes
                elif ask.peer.alive:
                    self._asks.append(ask)  # all of its blocks are in flight: others first
        return False

    def _answer(self, ask: _Ask) -> bool:
        schema = self.table.gives
        assert schema is not None, "a table that may be sampled has a schema"
        layout = schema.layout(ask.count)
        guest: Guest = ask.peer.state
        if not guest.schema:
            guest.schema = True
            ask.peer.send(Header(protocol.STATE, body=protocol.encode(self.state())))
        block = ask.peer.reserve(layout.nbytes) if ask.peer.alive else None
        if block is None:
            return False
        self.table.sample(ask.count, layout.views(block.view))
        guest.asking -= 1
        guest.mass, guest.told = self.table.mass, ""
        self.counts.sample_wait += time.monotonic() - ask.since
        body = protocol.encode(self.state(schema=False))
        header = Header(protocol.SAMPLE, schema.hash, ask.count, ask.number, body=body)
        return ask.peer.send(header, block, layout.nbytes)

    def gone(self, peer: Peer) -> None:
        """A client is no longer there: what it sent and was not let in comes again, if it lives."""
        self._held = deque(one for one in self._held if one.frame.peer is not peer)
        self._asks = deque(ask for ask in self._asks if ask.peer is not peer)
        self.wishes.pop((peer.name, peer.incarnation), None)
        self.ledger.left(peer.name)

    def tell(self, peers: list[Peer], patience: float) -> None:
        """Tell those who wait longer than that why, and those who sample how the table has changed."""
        late = time.monotonic() - patience
        why = {one.frame.peer: self.table.why_no_insert() for one in self._held if one.since < late}
        why |= {ask.peer: self.table.why_no_sample(ask.count) for ask in self._asks if ask.since < late}
        mass = self.table.mass
        for peer in peers:
            guest: Guest = peer.state
            reason = why.get(peer, "")
            moved = guest.samples and abs(mass - guest.mass) > _CHANGED * max(mass, guest.mass)
            if reason != guest.told or moved:
                guest.told, guest.mass = reason, mass
                peer.send(Header(protocol.STATE, body=protocol.encode(self.state(reason, schema=False))))
