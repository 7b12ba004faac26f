"""One link, as the listener sees it: the blocks in flight to it, and those of its own to release."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.blocks import Block, BlockPool
from callsheet.runtime.link.transport import Disconnected, SendFull, ShmTransport, ZmqTransport
from callsheet.runtime.schema import Schema

if TYPE_CHECKING:
    from callsheet.runtime.link.listener import Listener

LARGE_BLOCK: Final = 128 * 1024
"""From this size on, copying a block takes much longer than the message that releases it."""
FIRST_SHARED_BLOCK: Final = m.MAX_BLOCKS // 2
"""Blocks from this number on are shared by many peers; those below belong to one."""


class Peer:
    """One link, as the listener sees it."""

    def __init__(
        self, listener: Listener, hello: m.Hello, schema: Schema | None, transport: ZmqTransport, route: bytes
    ) -> None:
        self.name = hello.name
        self.incarnation = hello.incarnation
        self.hello = hello
        self.schema = schema
        self.transport: ZmqTransport | ShmTransport = transport
        self.route = route
        self.alive = True
        self.token = b""
        """Authorizes its upgrade to shared memory."""
        self.upgrading = False
        """Whether it may still leave the network for shared memory."""
        self._deferred: dict[int, m.Header] = {}
        self.state: Any = None
        """Whatever the service stores about it."""
        self.unreleased = 0
        """Blocks it has sent that are not released yet."""
        self._listener = listener
        self._blocks = BlockPool(listener.window)
        self._in_flight: dict[int, Block] = {}
        self._releases: list[int] = []
        self._retained = 0
        self._shared: dict[int, list[Callable[[], None]]] = {}
        self._mapped_by_peer: dict[int, Block] = {}

    def reserve(self, size: int) -> Block | None:
        """A block to fill and send; None while all are in flight."""
        return self._blocks.take(size)

    def send(self, header: m.Header, block: Block | None = None, length: int = 0) -> bool:
        """Send a message; return whether the peer was still connected."""
        if not self.alive:
            return False
        if self.upgrading and block is None:
            # It would be lost with the connection that the peer leaves. A later message replaces one of the same verb.
            self._deferred[header.verb] = header
            return True
        released = self._releases.pop() if self._releases else m.NO_BLOCK
        try:
            self.transport.send_data(header, block, length, released)
        except (Disconnected, SendFull):
            self._listener.disconnect(self)
            return False
        if not self.transport.shared_memory:
            self._listener.recheck_socket()
        if block is not None:
            self._in_flight[block.index] = block
        return True

    def end_upgrade(self) -> None:
        """Its transport is settled: send what waited for that."""
        self.upgrading = False
        while self._deferred:
            self.send(self._deferred.pop(next(iter(self._deferred))))

    def send_shared(self, header: m.Header, block: Block, length: int, on_return: Callable[[], None]) -> bool:
        """Send a block that other peers read too. `on_return` is called when this peer releases it or disconnects."""
        if not self.alive:
            on_return()
            return False
        block.shared = self._mapped_by_peer.get(block.index) is block
        released = self._releases.pop() if self._releases else m.NO_BLOCK
        try:
            self.transport.send_data(header, block, length, released)
        except (Disconnected, SendFull):
            on_return()
            self._listener.disconnect(self)
            return False
        if self.transport.shared_memory:
            self._mapped_by_peer[block.index] = block
        else:
            self._listener.recheck_socket()
        self._shared.setdefault(block.index, []).append(on_return)
        return True

    @property
    def shared_count(self) -> int:
        """Shared blocks this peer has now."""
        return sum(map(len, self._shared.values()))

    def send_refusal(self, refusal: m.Refusal) -> None:
        """Send a refusal, as the last message."""
        refusal.reason = refusal.reason[: m.MAX_REASON]
        self._listener.recheck_socket()
        with contextlib.suppress(Disconnected, SendFull):
            self.transport.send(m.encode(m.REFUSAL, refusal))

    def refuse(self, reason: str, fix: str) -> None:
        """End the link for good."""
        if self.alive:
            self._listener.refuse(self, m.Refusal(reason, fix=fix))

    def queue_release(self, block: int) -> None:
        """A block of the peer is no longer needed; tell it soon."""
        self.unreleased -= 1
        self._releases.append(block)
        if len(self._releases) * 2 >= self._listener.window:
            self.flush_releases()
        else:
            self._listener.pending_releases.add(self)

    def retain_large(self) -> Callable[[int], None]:
        """A large block has arrived; return the function that releases it. The peer refills it while others are
        copied, so with several peers every second release, or the last one, is sent at once."""
        self._retained += 1
        return self._queue_large_release

    def _queue_large_release(self, block: int) -> None:
        self.unreleased -= 1
        self._retained -= 1
        self._releases.append(block)
        if len(self._releases) > 1 or not self._retained or self._listener.link_count == 1:
            self.flush_releases()
        else:
            self._listener.pending_releases.add(self)

    def flush_releases(self) -> None:
        """Release all blocks that are no longer needed."""
        if self._releases and self.alive:
            blocks, self._releases = self._releases, []
            try:
                self.transport.send(m.encode_release(blocks))
            except (Disconnected, SendFull):
                self._listener.disconnect(self)
            if not self.transport.shared_memory:
                self._listener.recheck_socket()

    def block_returned(self, index: int) -> None:
        """The peer has released a block of ours."""
        if index >= FIRST_SHARED_BLOCK:
            callbacks = self._shared.get(index)
            if not callbacks:
                raise m.BadMessage(f"block {index} given back, which was not lent")
            callbacks.pop(0)()
            return
        block = self._in_flight.pop(index, None)
        if block is None:
            raise m.BadMessage(f"block {index} given back, which was not in flight")
        self._blocks.release_block(block)

    def close(self) -> None:
        """Free its memory."""
        self.alive = False
        for callbacks in self._shared.values():
            for on_return in callbacks:
                on_return()
        self._shared.clear()
        self._mapped_by_peer.clear()
        self._blocks.close()
        if isinstance(self.transport, ShmTransport):
            self.transport.close()


@dataclass
class PeerIndex:
    """All links of a listener."""

    by_name: dict[str, Peer] = field(default_factory=dict)
    by_route: dict[bytes, Peer] = field(default_factory=dict)
    by_fd: dict[int, Peer] = field(default_factory=dict)
