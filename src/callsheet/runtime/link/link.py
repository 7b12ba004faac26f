"""The side that connects to an endpoint: it reconnects automatically and resends what was not released.

Nothing runs in the background. A call that needs the connection establishes it, within its deadline; messages that
were in flight when a connection broke are resent on the next one, in order.
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
from callsheet.runtime.link.connector import Connector, LinkTransport, Refused, ZmqClientTransport
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.in_flight import InFlightMessage, InFlightWindow
from callsheet.runtime.link.transport import Disconnected, SendFull, ShmTransport
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline

_MAX_BACKOFF = 0.5
_ATTEMPT_SECONDS = 2.0
_QUICK_CONNECT = 0.05
_WRONG_KEY_AFTER = 10.0
"""If a link was never accepted, this many seconds of failed handshakes mean a wrong key."""


class TimedOut(RetryError):
    """A deadline passed before the other side answered."""


class Link:
    """A connection to one listener. Use it from one thread at a time."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        service: str,
        *,
        schema: Schema | None = None,
        address: str = "",
        blocks: int = 4,
        on_connect: Callable[[m.Welcome], None] = lambda welcome: None,
        hello_body: Callable[[], bytes] = bytes,
        on_data: Callable[[Frame], None] = Frame.release,
        piggyback_releases: bool = False,
    ) -> None:
        """With `piggyback_releases`, blocks are released along with the next posted message instead of one of their
        own."""
        self.context = context
        self._in_flight = InFlightWindow(blocks)
        self.counts = self._in_flight.counts
        self._connector = Connector(context, endpoint, address or context.address(endpoint), service, schema)
        self._blocks = self._in_flight.blocks
        self._transport: LinkTransport | None = None
        self._poll = select.poll()
        self._on_connect = on_connect
        self._hello_body = hello_body
        self._backoff = 0.0
        self._not_before = 0.0
        self._down_since = time.monotonic()
        self._on_data = on_data
        self._piggyback = piggyback_releases
        self._queued_releases: list[int] = []
        self._resend_queue: deque[InFlightMessage] = deque()
        """Messages to resend that do not fit into the listener's window yet."""
        self._window = blocks
        context.data_plane_metrics.track("Transport", endpoint, self.measure)

    def measure(self) -> dict[str, float]:
        """Values for the transport metrics."""
        return {**self.counts.measure(), "peers": self._transport is not None}

    @property
    def shared_memory(self) -> bool | None:
        """Whether payloads stay in shared memory; None while disconnected."""
        return self._transport.shared_memory if self._transport else None

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._transport is not None

    @property
    def in_flight(self) -> int:
        """Blocks that the other side has not released yet."""
        return len(self._in_flight)

    @property
    def in_flight_items(self) -> int:
        """Items in those blocks."""
        return self._in_flight.items

    @property
    def free(self) -> int:
        """Blocks that can be filled now."""
        return self._blocks.free

    @property
    def address(self) -> str:
        """The listener's address."""
        return self._connector.address

    @property
    def bytes_on_socket(self) -> int:
        """Bytes that went through the socket itself while payloads stayed in shared memory."""
        return self._transport.bytes_on_socket if isinstance(self._transport, ShmTransport) else 0

    def set_schema(self, schema: Schema) -> None:
        """Set what will be sent, if it was not known at first; before connecting."""
        self._connector.schema = schema

    def connect(self, timeout: float | None = None) -> None:
        """Connect, unless connected."""
        deadline = Deadline(timeout)
        while self._transport is None:
            self._connect_once(deadline)

    def try_connect(self, patience: float = _QUICK_CONNECT) -> bool:
        """Return whether there is a connection; try for a moment to establish one, and continue in the next call."""
        if self._transport is None and time.monotonic() >= self._not_before:
            self.context.stop.check()
            wait = 0.0 if self._connector.in_progress else patience
            if not self._attempt(time.monotonic() + wait) and not self._connector.in_progress:
                self._not_before = time.monotonic() + _MAX_BACKOFF
        return self._transport is not None

    def reserve(self, size: int, timeout: float | None = None) -> Block:
        """A block to fill; waits until one is free."""
        block = self._blocks.take(size)
        if block is not None:
            return block
        begun = time.monotonic()
        deadline = Deadline(timeout)
        while True:
            self.wait(deadline)
            block = self._blocks.take(size)
            if block is not None:
                self.counts.waited += time.monotonic() - begun
                return block

    def try_reserve(self, size: int) -> Block | None:
        """A block to fill, if one is free now."""
        block = self._blocks.take(size)
        if block is None and self._transport is not None:
            self._receive_all()
            block = self._blocks.take(size)
        return block

    def cancel(self, block: Block) -> None:
        """Give up a reserved block."""
        self._blocks.release_block(block)

    def post(self, header: m.Header, block: Block, length: int) -> None:
        """Send without waiting: now, or on the next connection. The message arrives as long as this process lives."""
        message = self._in_flight.add(header, block, length, self.shared_memory)
        if self._resend_queue:
            self._resend_queue.append(message)
        elif self._transport is not None:
            released = self._queued_releases.pop() if self._queued_releases else m.NO_BLOCK
            try:
                self._transport.send_data(header, block, length, released)
            except (SendFull, Disconnected):
                self._disconnected()

    def send(self, header: m.Header, released: int = m.NO_BLOCK) -> bool:
        """Send a message without arrays if connected; return whether it was. The message may be lost. It can release
        a block that arrived on this connection."""
        if self._transport is None:
            return False
        try:
            self._transport.send_data(header, None, 0, released)
        except (SendFull, Disconnected):
            self._disconnected()
            return False
        return True

    def discard_in_flight(self) -> None:
        """Do not resend what is in flight. The other side may still read it, so the blocks get new memory."""
        self._resend_queue.clear()
        self._in_flight.abandon()

    def limit_blocks(self, blocks: int) -> None:
        """Use no more blocks than this."""
        self._blocks.shrink_to(blocks)

    def poll(self) -> None:
        """Process what has arrived, without waiting."""
        if self._transport is not None:
            self._receive_all()

    def check_connection(self) -> None:
        """Process what has arrived, and notice a broken connection, without waiting."""
        if isinstance(self._transport, ZmqClientTransport):
            try:
                self._transport.check_connection()
            except Disconnected:
                self._disconnected()
        self.poll()

    def wait(self, deadline: Deadline) -> None:
        """Wait up to a second for an event and process it; `TimedOut` if the deadline has passed."""
        if self._connector.interruptible:
            self.context.stop.check()
        if self._transport is None:
            self._connect_once(deadline)
            return
        if deadline.passed:
            raise TimedOut(f"{self._connector.endpoint} at {self.address} did not answer in time")
        transport = self._transport
        try:
            if isinstance(transport, ShmTransport):
                self._poll.poll(deadline.left(1.0) * 1000)
            else:
                transport.wait(deadline.left(1.0))
        except Disconnected:
            self._disconnected()
            return
        self._receive_all()

    def _receive_all(self) -> None:
        transport = self._transport
        if transport is None:
            return
        try:
            while (received := transport.receive()) is not None:
                message, payload, kind, block, released = received
                if released != m.NO_BLOCK:
                    self._in_flight.release(released)
                if kind == m.RELEASE:
                    for index in m.decode_release(message):
                        self._in_flight.release(index)
                elif kind == m.DATA:
                    self.counts.received += 1
                    self._on_data(
                        Frame(m.decode_header(message), payload, block, self, self._release(transport))
                    )
                elif kind == m.REFUSAL:
                    refusal = m.decode_refusal(message)
                    if not refusal.retryable:
                        self._disconnected()
                        raise Refused(
                            f"{self._connector.endpoint} at {self.address} ended the link: {refusal.reason}",
                            fix=refusal.fix,
                        )
                    self._connector.reason = refusal.reason
                    raise Disconnected
        except (Disconnected, m.BadMessage):
            self._disconnected()
        if self._resend_queue:
            self._resend()

    def _release(self, transport: LinkTransport) -> Callable[[int], None]:
        def release(block: int) -> None:
            if self._transport is transport:
                if self._piggyback:
                    self._queued_releases.append(block)
                    return
                try:
                    transport.send(m.encode_release([block]))
                except (Disconnected, SendFull):
                    self._disconnected()

        return release

    def _connect_once(self, deadline: Deadline) -> None:
        jitter = random.uniform(0.5, 1.5)  # noqa: S311 - jitter: many links lose the same listener at once
        wait = deadline.left(self._backoff * jitter)
        if wait and self._connector.interruptible:
            self.context.stop.sleep(wait)
        elif wait:
            time.sleep(wait)
        if self._attempt(time.monotonic() + deadline.left(_ATTEMPT_SECONDS)):
            return
        if not self._connector.in_progress:
            self._backoff = min(_MAX_BACKOFF, max(0.05, self._backoff * 2))
        if deadline.passed:  # the attempt continues in the next call: a busy listener may need longer
            raise TimedOut(
                f"no connection to {self._connector.endpoint} at {self.address}: {self._connector.reason}",
                fix="is the process that binds it running? See `callsheet status`",
            )

    def _attempt(self, until: float) -> bool:
        connection = self._connector.attempt(self._hello_body(), until)
        if connection is not None:
            self._transport, welcome = connection
            self._connected(welcome)
            return True
        if not self.counts.connects and self._connector.handshake_failing_for > _WRONG_KEY_AFTER:
            raise Refused(
                f"{self._connector.endpoint} at {self.address} does not accept this process's key",
                fix="both must belong to the same run; a process started by hand uses `callsheet join`",
            )
        self._connector.log_outage(time.monotonic() - self._down_since)
        return False

    def _connected(self, welcome: m.Welcome) -> None:
        self._backoff = 0.0
        self.counts.connects += 1
        self._watch()
        self._window = max(1, welcome.window)
        self._blocks.shrink_to(welcome.window)
        self._blocks.mark_unshared()
        self._on_connect(welcome)
        self._resend_queue = deque(self._in_flight.messages())
        self._resend()

    def _resend(self) -> None:
        """Resend as much as fits into the window: this listener may allow less than the last one."""
        while self._resend_queue and self._transport is not None:
            if len(self._in_flight) - len(self._resend_queue) >= self._window:
                return
            message = self._resend_queue.popleft()
            try:
                self._transport.send_data(message.header, message.block, message.length)
                self.counts.resent += 1
            except (Disconnected, SendFull):
                self._disconnected()

    def _watch(self) -> None:
        self._poll = select.poll()
        if isinstance(self._transport, ShmTransport):
            self._poll.register(self._transport.fd, select.POLLIN)
            if self._connector.interruptible:
                self._poll.register(self.context.stop.fd, select.POLLIN)
        elif self._transport is not None and not self._connector.interruptible:
            self._transport.ignore_stop()

    def _disconnected(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
            self._down_since = time.monotonic()
            self._queued_releases.clear()
            self._resend_queue.clear()

    def drain(self, timeout: float | None) -> bool:
        """Wait until the other side has released all blocks, even if the process should stop; return whether it did."""
        deadline = Deadline(timeout)
        self.ignore_stop()
        while len(self._in_flight):
            try:
                self.wait(deadline)
            except TimedOut:
                return False
        return True

    def ignore_stop(self) -> None:
        """From now on, waits continue even if the process should stop, to hand over what is left."""
        if self._connector.interruptible:
            self._connector.interruptible = False
            self._watch()

    def close(self) -> None:
        """Close the connection. Messages in flight may be lost, so call `drain` first."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        self._connector.close()
        self._blocks.close()
        self.context.data_plane_metrics.untrack(self.measure)
