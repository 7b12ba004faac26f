"""The messages a link has sent and the listener has not released yet: bounded, and in order."""

from __future__ import annotations

from dataclasses import dataclass

from callsheet.runtime.link.blocks import Block, BlockPool
from callsheet.runtime.link.protocol import Header


@dataclass
class LinkStats:
    """Counters of a link, read by the metrics."""

    sent: int = 0
    sent_bytes: int = 0
    sent_via_shm: int = 0
    received: int = 0
    connects: int = 0
    resent: int = 0
    waited: float = 0.0
    """Seconds spent waiting for a free block or for the other side."""

    def measure(self) -> dict[str, float]:
        """Values for the transport metrics."""
        return {
            "sent_memory": self.sent_via_shm,
            "sent_network": self.sent_bytes - self.sent_via_shm,
            "frames_sent": self.sent,
            "frames_received": self.received,
            "reconnects": max(0, self.connects - 1),
        }


@dataclass(slots=True)
class InFlightMessage:
    """A message in flight."""

    header: Header
    block: Block
    length: int


class InFlightWindow:
    """The messages in flight, in the order they were sent."""

    def __init__(self, blocks: int) -> None:
        self.blocks = BlockPool(blocks)
        self.counts = LinkStats()
        self._messages: dict[int, InFlightMessage] = {}

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def items(self) -> int:
        """Items in all messages."""
        return sum(message.header.count for message in self._messages.values())

    def messages(self) -> list[InFlightMessage]:
        """All messages, for resending."""
        return list(self._messages.values())

    def add(self, header: Header, block: Block, length: int, shared_memory: bool | None) -> InFlightMessage:
        """Record a message that is being sent."""
        message = self._messages[block.index] = InFlightMessage(header, block, length)
        counts = self.counts
        counts.sent += 1
        counts.sent_bytes += length
        if shared_memory:
            counts.sent_via_shm += length
        return message

    def release(self, index: int) -> None:
        """The other side has released a block."""
        message = self._messages.pop(index, None)
        if message is not None:
            self.blocks.release_block(message.block)

    def abandon(self) -> None:
        """Forget everything in flight. The other side may still read it, so the blocks get new memory."""
        for message in self._messages.values():
            message.block.close()
            self.blocks.release_block(message.block)
        self._messages.clear()
