"""One link, as the listener sees it: the blocks that are in flight to it, and those that it is owed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.blocks import Block, Blocks
from callsheet.runtime.link.endpoint_handler import LONGEST_REASON
from callsheet.runtime.link.transport import Full, Lost, MemoryWire, NetworkWire
from callsheet.runtime.schema import Schema

if TYPE_CHECKING:
    from callsheet.runtime.link.listener import Listener

LARGE: Final = 128 * 1024
"""Bytes from which copying a block takes much longer than the message that gives it back."""
LENT: Final = m.MOST_BLOCKS // 2
"""Blocks with this number and above are lent to many peers at once; those below belong to one."""


class Peer:
    """One link, as the listener sees it."""

    def __init__(
        self, listener: Listener, hello: m.Hello, schema: Schema | None, wire: NetworkWire, route: bytes
    ) -> None:
        self.name = hello.name
        self.incarnation = hello.incarnation
        self.hello = hello
        self.schema = schema
        self.wire: NetworkWire | MemoryWire = wire
        self.route = route
        self.alive = True
        self.token = b""
        """With which it may come in by memory."""
        self.state: Any = None
        """Whatever the pattern keeps about it."""
        self.open = 0
        """Blocks of its own that it has sent and that are not done with."""
        self._listener = listener
        self._blocks = Blocks(listener.window)
        self._flying: dict[int, Block] = {}
        self._owed: list[int] = []
        self._held = 0
        self._loans: dict[int, list[Callable[[], None]]] = {}
        self._seen: dict[int, Block] = {}

    def reserve(self, size: int) -> Block | None:
        """A block to fill and send; None while all are in flight."""
        return self._blocks.take(size)

    def send(self, header: m.Header, block: Block | None = None, length: int = 0) -> bool:
        """Send; whether the peer was still there."""
        if not self.alive:
            return False
        released = self._owed.pop() if self._owed else m.NO_BLOCK
        try:
            self.wire.send_data(header, block, length, released)
        except (Lost, Full):
            self._listener.drop(self)
            return False
        if not self.wire.by_memory:
            self._listener.touched()
        if block is not None:
            self._flying[block.index] = block
        return True

    def lend(self, header: m.Header, block: Block, length: int, returned: Callable[[], None]) -> bool:
        """Send a block that other peers read too; `returned` is called once this one gives it back, or is gone."""
        if not self.alive:
            returned()
            return False
        block.shown = self._seen.get(block.index) is block
        released = self._owed.pop() if self._owed else m.NO_BLOCK
        try:
            self.wire.send_data(header, block, length, released)
        except (Lost, Full):
            returned()
            self._listener.drop(self)
            return False
        if self.wire.by_memory:
            self._seen[block.index] = block
        else:
            self._listener.touched()
        self._loans.setdefault(block.index, []).append(returned)
        return True

    @property
    def loans(self) -> int:
        """Blocks that are lent to it now."""
        return sum(map(len, self._loans.values()))

    def say_no(self, no: m.Refusal) -> None:
        """The last that it hears."""
        no.reason = no.reason[:LONGEST_REASON]
        self._listener.touched()
        with contextlib.suppress(Lost, Full):
            self.wire.send(m.encode(m.REFUSAL, no))

    def refuse(self, reason: str, fix: str) -> None:
        """End the link for good, because of what it wants."""
        if self.alive:
            self._listener.refuse(self, m.Refusal(reason, fix=fix))

    def owe(self, block: int) -> None:
        """A block of the peer's is done with; it is told so soon."""
        self.open -= 1
        self._owed.append(block)
        if len(self._owed) * 2 >= self._listener.window:
            self.pay()
        else:
            self._listener.owing.add(self)

    def hold(self) -> Callable[[int], None]:
        """A large block has come; what to call with its number when it is done with. The peer fills it again while others
        are copied: where there are several peers it is told with every second one, or when it waits for none other."""
        self._held += 1
        return self._owe_large

    def _owe_large(self, block: int) -> None:
        self.open -= 1
        self._held -= 1
        self._owed.append(block)
        if len(self._owed) > 1 or not self._held or self._listener.links == 1:
            self.pay()
        else:
            self._listener.owing.add(self)

    def pay(self) -> None:
        """Give all blocks back that are done with."""
        if self._owed and self.alive:
            blocks, self._owed = self._owed, []
            try:
                self.wire.send(m.encode_release(blocks))
            except (Lost, Full):
                self._listener.drop(self)
            if not self.wire.by_memory:
                self._listener.touched()

    def given_back(self, index: int) -> None:
        """The peer is done with a block of ours."""
        if index >= LENT:
            loans = self._loans.get(index)
            if not loans:
                raise m.BadMessage(f"block {index} given back, which was not lent")
            loans.pop(0)()
            return
        block = self._flying.pop(index, None)
        if block is None:
            raise m.BadMessage(f"block {index} given back, which was not in flight")
        self._blocks.give_back(block)

    def close(self) -> None:
        """Forget its memory."""
        self.alive = False
        for loans in self._loans.values():
            for returned in loans:
                returned()
        self._loans.clear()
        self._seen.clear()
        self._blocks.close()
        if isinstance(self.wire, MemoryWire):
            self.wire.close()


@dataclass
class Peers:
    """All links of a listener, by what they are found by."""

    by_name: dict[str, Peer] = field(default_factory=dict)
    by_route: dict[bytes, Peer] = field(default_factory=dict)
    by_fd: dict[int, Peer] = field(default_factory=dict)
