"""The side that connects to an endpoint: it comes back by itself, and sends again what was not taken.

Nothing runs in the background. A call that needs the connection makes it, as long as its deadline allows; what is in
flight when a connection breaks is sent again on the next one, in its order.
"""

from __future__ import annotations

import random
import select
import time
from collections import deque
from collections.abc import Callable

from callsheet.errors import RetryError
from callsheet.runtime.context import Context
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.blocks import Block
from callsheet.runtime.link.connector import Dialler, NetworkEnd, Refused
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.in_flight import Flight, Flying
from callsheet.runtime.link.transport import Full, Lost, MemoryWire
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline

_SLOWEST = 0.5
_TRY = 2.0
_PATIENCE = 0.05
_UNMET = 10.0
"""Seconds of failed handshakes after which a link that was never accepted has the wrong key."""


class TimedOut(RetryError):
    """A deadline passed before the other side did what was wanted."""


class Link:
    """A connection to one listener. One thread at a time uses it."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        pattern: str,
        *,
        schema: Schema | None = None,
        address: str = "",
        blocks: int = 4,
        on_up: Callable[[m.Welcome], None] = lambda welcome: None,
        body: Callable[[], bytes] = bytes,
        on_data: Callable[[Frame], None] = Frame.release,
        lazy: bool = False,
    ) -> None:
        """A lazy link gives blocks back with the next message that it posts, not with one of their own."""
        self.context = context
        self._flight = Flight(blocks)
        self.counts = self._flight.counts
        self._dialler = Dialler(context, endpoint, address or context.address(endpoint), pattern, schema)
        self._blocks = self._flight.blocks
        self._wire: MemoryWire | NetworkEnd | None = None
        self._poll = select.poll()
        self._on_up = on_up
        self._body = body
        self._backoff = 0.0
        self._not_before = 0.0
        self._down_since = time.monotonic()
        self._on_data = on_data
        self._lazy = lazy
        self._owed: list[int] = []
        self._again: deque[Flying] = deque()
        """What is to be sent again and does not fit into the listener's window yet."""
        self._window = blocks
        context.measuring.follow("Transport", endpoint, self.measure)

    def measure(self) -> dict[str, float]:
        """What the metrics of transport show."""
        return {**self.counts.measure(), "peers": self._wire is not None}

    @property
    def by_memory(self) -> bool | None:
        """Whether payloads stay in memory; None while there is no connection."""
        return self._wire.by_memory if self._wire else None

    @property
    def flying(self) -> int:
        """Blocks that the other side has not given back yet."""
        return len(self._flight)

    @property
    def flying_items(self) -> int:
        """Items in those blocks."""
        return self._flight.items

    @property
    def free(self) -> int:
        """Blocks that can be filled now."""
        return self._blocks.free

    @property
    def address(self) -> str:
        """Where the other side is."""
        return self._dialler.address

    @property
    def bytes_on_socket(self) -> int:
        """What passed the socket itself while payloads went by memory."""
        return self._wire.bytes_on_socket if isinstance(self._wire, MemoryWire) else 0

    def announce(self, schema: Schema) -> None:
        """What will be sent, when it was not known at first; before the first connection."""
        self._dialler.schema = schema

    def connect(self, timeout: float | None = None) -> None:
        """Have a connection."""
        deadline = Deadline(timeout)
        while self._wire is None:
            self._dial(deadline)

    def try_connect(self, patience: float = _PATIENCE) -> bool:
        """Whether there is a connection; makes one if that goes quickly, else goes on with it in the next call."""
        if self._wire is None and time.monotonic() >= self._not_before:
            self.context.stop.check()
            wait = 0.0 if self._dialler.under_way else patience
            if not self._try(time.monotonic() + wait) and not self._dialler.under_way:
                self._not_before = time.monotonic() + _SLOWEST
        return self._wire is not None

    def reserve(self, size: int, timeout: float | None = None) -> Block:
        """A block to fill; waits until one is free."""
        block = self._blocks.take(size)
        if block is not None:
            return block
        begun = time.monotonic()
        deadline = Deadline(timeout)
        while True:
            self._step(deadline)
            block = self._blocks.take(size)
            if block is not None:
                self.counts.waited += time.monotonic() - begun
                return block

    def try_reserve(self, size: int) -> Block | None:
        """A block to fill, if one is free now."""
        block = self._blocks.take(size)
        if block is None and self._wire is not None:
            self._pump()
            block = self._blocks.take(size)
        return block

    def cancel(self, block: Block) -> None:
        """A reserved block is not sent after all."""
        self._blocks.give_back(block)

    def post(self, header: m.Header, block: Block, length: int) -> None:
        """Send without waiting: at once, or with the next connection when there is none now. It is certain to arrive
        while this process lives."""
        flying = self._flight.launch(header, block, length, self.by_memory)
        if self._again:
            self._again.append(flying)
        elif self._wire is not None:
            released = self._owed.pop() if self._owed else m.NO_BLOCK
            try:
                self._wire.send_data(header, block, length, released)
            except (Full, Lost):
                self._lost()

    def tell(self, header: m.Header, released: int = m.NO_BLOCK) -> bool:
        """Send a message without arrays if there is a connection now; whether there was. It may be lost. A block that
        came on this connection can be given back with it."""
        if self._wire is None:
            return False
        try:
            self._wire.send_data(header, None, 0, released)
        except (Full, Lost):
            self._lost()
            return False
        return True

    def forget(self) -> None:
        """Do not send again what is in flight. The other side may still look at it: new memory takes its place."""
        self._again.clear()
        self._flight.forget()

    def limit(self, blocks: int) -> None:
        """Have no more blocks than this."""
        self._blocks.limit(blocks)

    def poll(self) -> None:
        """Take in what has come, without waiting."""
        if self._wire is not None:
            self._pump()

    def look(self) -> None:
        """Take in what has come, and notice when the connection broke, without waiting."""
        if isinstance(self._wire, NetworkEnd):
            try:
                self._wire.look()
            except Lost:
                self._lost()
        self.poll()

    def wait(self, deadline: Deadline) -> None:
        """Wait for anything to happen, a second at most, and deal with it; `TimedOut` when the deadline has passed."""
        self._step(deadline)

    def _step(self, deadline: Deadline) -> None:
        """Wait for something to happen, and deal with it."""
        if self._dialler.heeds_stop:
            self.context.stop.check()
        if self._wire is None:
            self._dial(deadline)
            return
        if deadline.passed:
            raise TimedOut(f"{self._dialler.endpoint} at {self.address} did not answer in time")
        wire = self._wire
        try:
            if isinstance(wire, MemoryWire):
                self._poll.poll(deadline.left(1.0) * 1000)
            else:
                wire.wait(deadline.left(1.0))
        except Lost:
            self._lost()
            return
        self._pump()

    def _pump(self) -> None:
        wire = self._wire
        if wire is None:
            return
        try:
            while (found := wire.receive()) is not None:
                message, payload, kind, block, released = found
                if released != m.NO_BLOCK:
                    self._flight.land(released)
                if kind == m.RELEASE:
                    for index in m.released_by(message):
                        self._flight.land(index)
                elif kind == m.DATA:
                    self.counts.received += 1
                    self._on_data(Frame(m.header_of(message), payload, block, self, self._release(wire)))
                elif kind == m.REFUSAL:
                    no = m.refusal_of(message)
                    if not no.again:
                        self._lost()
                        raise Refused(
                            f"{self._dialler.endpoint} at {self.address} ended the link: {no.reason}",
                            fix=no.fix,
                        )
                    self._dialler.reason = no.reason
                    raise Lost
        except (Lost, m.BadMessage):
            self._lost()
        if self._again:
            self._send_again()

    def _release(self, wire: MemoryWire | NetworkEnd) -> Callable[[int], None]:
        def release(block: int) -> None:
            if self._wire is wire:
                if self._lazy:
                    self._owed.append(block)
                    return
                try:
                    wire.send(m.encode_release([block]))
                except (Lost, Full):
                    self._lost()

        return release

    def _dial(self, deadline: Deadline) -> None:
        spread = random.uniform(0.5, 1.5)  # noqa: S311 - many lose the same listener at once
        wait = deadline.left(self._backoff * spread)
        if wait and self._dialler.heeds_stop:
            self.context.stop.sleep(wait)
        elif wait:
            time.sleep(wait)
        if self._try(time.monotonic() + deadline.left(_TRY)):
            return
        if not self._dialler.under_way:
            self._backoff = min(_SLOWEST, max(0.05, self._backoff * 2))
        if deadline.passed:  # the try goes on in the next call: a busy listener may need longer than one
            raise TimedOut(
                f"no connection to {self._dialler.endpoint} at {self.address}: {self._dialler.reason}",
                fix="is the process that binds it running? See `callsheet status`",
            )

    def _try(self, until: float) -> bool:
        found = self._dialler.dial(self._body(), until)
        if found is not None:
            self._wire, welcome = found
            self._up(welcome)
            return True
        if not self.counts.connects and self._dialler.unmet > _UNMET:
            raise Refused(
                f"{self._dialler.endpoint} at {self.address} does not accept this process's key",
                fix="both must belong to the same run; a process started by hand uses `callsheet join`",
            )
        self._dialler.say(time.monotonic() - self._down_since)
        return False

    def _up(self, welcome: m.Welcome) -> None:
        self._backoff = 0.0
        self.counts.connects += 1
        self._watch()
        self._window = max(1, welcome.window)
        self._blocks.limit(welcome.window)
        self._blocks.hide()
        self._on_up(welcome)
        self._again = deque(self._flight.all())
        self._send_again()

    def _send_again(self) -> None:
        """As much as the listener takes at a time: it may allow less than the one before it."""
        while self._again and self._wire is not None:
            if len(self._flight) - len(self._again) >= self._window:
                return
            flying = self._again.popleft()
            try:
                self._wire.send_data(flying.header, flying.block, flying.length)
                self.counts.resent += 1
            except (Lost, Full):
                self._lost()

    def _watch(self) -> None:
        self._poll = select.poll()
        if isinstance(self._wire, MemoryWire):
            self._poll.register(self._wire.fd, select.POLLIN)
            if self._dialler.heeds_stop:
                self._poll.register(self.context.stop.fd, select.POLLIN)
        elif self._wire is not None and not self._dialler.heeds_stop:
            self._wire.ignore_stop()

    def _lost(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
            self._down_since = time.monotonic()
            self._owed.clear()
            self._again.clear()

    def drain(self, timeout: float | None) -> bool:
        """Wait until the other side has given all blocks back, also when the process should stop; whether it did."""
        deadline = Deadline(timeout)
        self.ignore_stop()
        while len(self._flight):
            try:
                self._step(deadline)
            except TimedOut:
                return False
        return True

    def ignore_stop(self) -> None:
        """From now on waits go on although the process should stop: it hands over what it has."""
        if self._dialler.heeds_stop:
            self._dialler.heeds_stop = False
            self._watch()

    def close(self) -> None:
        """End the connection; what is in flight may be lost, so `drain` first."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._dialler.close()
        self._blocks.close()
        self.context.measuring.ended(self.measure)
