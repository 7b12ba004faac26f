"""What is on its way from a link to its listener: in blocks of the link's own, bounded, in order, until given back."""

from __future__ import annotations

from dataclasses import dataclass

from callsheet.runtime.link.blocks import Block, Blocks
from callsheet.runtime.link.protocol import Header


@dataclass
class Counts:
    """What a link has seen; read by the metrics."""

    sent: int = 0
    sent_bytes: int = 0
    sent_by_memory: int = 0
    received: int = 0
    connects: int = 0
    resent: int = 0
    waited: float = 0.0
    """Seconds spent waiting for a free block or for the other side."""

    def measure(self) -> dict[str, float]:
        """What the metrics of transport show."""
        return {
            "sent_memory": self.sent_by_memory,
            "sent_network": self.sent_bytes - self.sent_by_memory,
            "frames_sent": self.sent,
            "frames_received": self.received,
            "reconnects": max(0, self.connects - 1),
        }


@dataclass(slots=True)
class Flying:
    """One message in flight."""

    header: Header
    block: Block
    length: int


class Flight:
    """The messages in flight, in the order of their sending."""

    def __init__(self, blocks: int) -> None:
        self.blocks = Blocks(blocks)
        self.counts = Counts()
        self._flying: dict[int, Flying] = {}

    def __len__(self) -> int:
        return len(self._flying)

    @property
    def items(self) -> int:
        """In all messages together."""
        return sum(flying.header.count for flying in self._flying.values())

    def all(self) -> list[Flying]:
        """To be sent again."""
        return list(self._flying.values())

    def launch(self, header: Header, block: Block, length: int, by_memory: bool | None) -> Flying:
        """A message is sent."""
        flying = self._flying[block.index] = Flying(header, block, length)
        counts = self.counts
        counts.sent += 1
        counts.sent_bytes += length
        if by_memory:
            counts.sent_by_memory += length
        return flying

    def land(self, index: int) -> None:
        """The other side is done with a block."""
        flying = self._flying.pop(index, None)
        if flying is not None:
            self.blocks.give_back(flying.block)

    def forget(self) -> None:
        """Nothing is in flight any more. The other side may still look at it: new memory takes its place."""
        for flying in self._flying.values():
            flying.block.close()
            self.blocks.give_back(flying.block)
        self._flying.clear()
