"""Establishes a link's connection: hello over the network, then an upgrade to shared memory on the same machine."""

from __future__ import annotations

import contextlib
import logging
import select
import time
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from callsheet.errors import CallsheetError, UserError
from callsheet.runtime.context import Context
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.blocks import SHM_AVAILABLE
from callsheet.runtime.link.frame import MultipartPayload
from callsheet.runtime.link.shm_handshake import ShmHandshakeClient, host_identity
from callsheet.runtime.link.transport import (
    Disconnected,
    SendFull,
    ShmTransport,
    ZmqTransport,
    parse,
    receive,
)
from callsheet.runtime.schema import Schema

log = logging.getLogger("callsheet.runtime")
_EVENTS = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
_POLLIN = int(zmq.POLLIN)
_LOG_AFTER = 5.0
_LOG_EVERY = 60.0
_KEEPALIVE_EVERY = 2.0
"""Seconds between keepalives, which tell whether the listener still knows us."""
_ATTEMPT_TIMEOUT = 60.0
"""Seconds for one attempt. A listener may be busy or have a thousand links to welcome; starting over would only take
longer. If the connection breaks, the next attempt starts at once."""
_AUTH_FAILURE_WITHIN = 2.0
"""A listener hangs up on an unknown key within this many seconds; later, it just had no time for the handshake."""


class Refused(CallsheetError):
    """The other side refuses this link for good."""

    exit_code = 2


def _readable(zmq_socket: zmq.Socket[Any]) -> bool:
    return bool(int(zmq_socket.getsockopt(zmq.EVENTS)) & _POLLIN)


class ZmqClientTransport(ZmqTransport):
    """The link's side of a ZeroMQ connection; it notices when the connection breaks."""

    def __init__(self, context: Context, address: str, *, interruptible: bool) -> None:
        self.zmq = context.sockets.link(address)
        self.monitor: zmq.Socket[Any] = self.zmq.get_monitor_socket(_EVENTS)
        super().__init__(self.zmq)
        try:
            self.zmq.connect(f"tcp://{address}")
        except zmq.ZMQError as error:
            self.close()
            raise UserError(
                f"cannot connect to {address!r}: {error.strerror}", fix="write host:port"
            ) from None
        self._stop_fd = context.stop.fd if interruptible else -1
        self._poll = select.poll()
        self._poll.register(int(self.zmq.getsockopt(zmq.FD)), select.POLLIN)
        self._poll.register(int(self.monitor.getsockopt(zmq.FD)), select.POLLIN)
        if interruptible:
            self._poll.register(self._stop_fd, select.POLLIN)
        self.handshake_failed = False
        self._keepalive_sent = self._connected = time.monotonic()

    def receive(self) -> tuple[bytes, memoryview | MultipartPayload, int, int, int] | None:
        """The next message; None if there is none."""
        try:
            return parse(receive(self.zmq)) if _readable(self.zmq) else None
        except zmq.Again:
            return None
        except (zmq.ZMQError, m.BadMessage):
            raise Disconnected from None

    def wait(self, seconds: float) -> None:
        """Wait until there is a message or the connection breaks."""
        # Check first: the descriptors are edge-triggered, and an event may have been consumed.
        if not _readable(self.zmq) and not _readable(self.monitor):
            self._poll.poll(seconds * 1000)
        self.check_connection()

    def check_connection(self, *, reads: bool = True) -> None:
        """Raise `Disconnected` if the connection broke. One that the listener dropped still looks intact from here,
        so keepalives go out: the listener refuses peers it does not know. With `reads`, messages that arrived before
        the break come first."""
        now = time.monotonic()
        if now - self._keepalive_sent > _KEEPALIVE_EVERY:
            self._keepalive_sent = now
            with contextlib.suppress(SendFull):
                self.send(m.encode(m.KEEPALIVE))
        while _readable(self.monitor) and not (reads and _readable(self.zmq)):
            event = recv_monitor_message(self.monitor, zmq.NOBLOCK)["event"]
            if event == zmq.EVENT_CONNECTED:
                self._connected = now
                continue
            quick = now - self._connected < _AUTH_FAILURE_WITHIN
            self.handshake_failed = event != zmq.EVENT_DISCONNECTED and (
                quick or event != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            )
            raise Disconnected

    def ignore_stop(self) -> None:
        """From now on, waits continue even if the process should stop."""
        if self._stop_fd >= 0:
            self._poll.unregister(self._stop_fd)
            self._stop_fd = -1

    def close(self) -> None:
        """Close it."""
        with contextlib.suppress(zmq.ZMQError):
            self.zmq.disable_monitor()
            self.monitor.close(0)
        super().close()


LinkTransport = ShmTransport | ZmqClientTransport


class Connector:
    """Connects to one address, as often as needed."""

    def __init__(
        self, context: Context, endpoint: str, address: str, service: str, schema: Schema | None
    ) -> None:
        self._context = context
        self._service = service
        self.schema = schema
        self._warned_no_shm = False
        self._name = context.link_name(endpoint, address)
        self.interruptible = True
        self.endpoint = endpoint
        self.address = address
        self.reason = "not connected yet"
        self._handshake_failed_at = self._handshake_failing_since = 0.0
        """Time of the last failed handshake, and of the first one in a row; 0 after a success."""
        self._logged_at = 0.0
        self._outage = 0.0
        self._pending: ZmqClientTransport | None = None
        self._upgrading: tuple[ShmHandshakeClient, m.Welcome] | None = None
        self._pending_options = (b"", True)
        self._expires_at = 0.0

    def attempt(self, body: bytes, deadline: float) -> tuple[LinkTransport, m.Welcome] | None:
        """Try to connect until `deadline`: the transport and the welcome, or None and a `reason`. An attempt that
        runs out of time continues in the next call."""
        try:
            transport = self._start_attempt(body)
        except SendFull:  # ZeroMQ dropped the connection, for example because only one side encrypts
            self.reason = "the connection broke"
            return None
        try:
            if self._upgrading is None:
                welcome = self._await_welcome(transport, deadline)
                if welcome is not None and welcome.socket:
                    self._upgrading = (ShmHandshakeClient(welcome.socket, welcome.token), welcome)
            if self._upgrading is not None:
                return self._upgrade_to_shm(transport, *self._upgrading, deadline)
        except Disconnected:
            if transport.handshake_failed:
                self._handshake_failed_at = time.monotonic()
                self._handshake_failing_since = self._handshake_failing_since or self._handshake_failed_at
                self.reason = (
                    "the handshake fails: it has another key, or something in between closes connections"
                )
            else:
                self._handshake_failed_at = self._handshake_failing_since = 0.0
                self.reason = "the connection broke"
            welcome = None
            self._expires_at = 0.0
        except BaseException:
            self.close()
            raise
        if welcome is None:
            if time.monotonic() >= self._expires_at:
                self.close()
            return None
        self._pending = None
        self._handshake_failed_at = self._handshake_failing_since = 0.0
        return transport, welcome

    @property
    def handshake_failing_for(self) -> float:
        """Seconds from the first to the last failed handshake in a row. A wrong key looks the same as a proxy without
        a backend, or a network that corrupts data."""
        return self._handshake_failed_at - self._handshake_failing_since

    @property
    def in_progress(self) -> bool:
        """Whether an attempt has started and may still succeed."""
        return self._pending is not None and time.monotonic() < self._expires_at

    def _start_attempt(self, body: bytes) -> ZmqClientTransport:
        options = (body, self.interruptible)
        if self._pending is not None and self.in_progress and self._pending_options == options:
            return self._pending
        self.close()
        self._pending = transport = ZmqClientTransport(
            self._context, self.address, interruptible=self.interruptible
        )
        self._pending_options, self._expires_at = options, time.monotonic() + _ATTEMPT_TIMEOUT
        try:
            transport.send(self._hello(body))
        except BaseException:
            self.close()
            raise
        return transport

    def log_outage(self, down: float) -> None:
        """Log, now and then, how long the connection has been down."""
        now = time.monotonic()
        if down < self._outage:
            self._logged_at = 0.0  # a new outage
        self._outage = down
        if down > _LOG_AFTER and (not self._logged_at or now - self._logged_at > _LOG_EVERY):
            self._logged_at = now
            log.warning("waiting for %s at %s for %.0f s: %s", self.endpoint, self.address, down, self.reason)

    def close(self) -> None:
        """Abort an attempt in progress."""
        if self._upgrading is not None:
            self._upgrading[0].close()
            self._upgrading = None
        if self._pending is not None:
            self._pending.close()
            self._pending = None

    def _hello(self, body: bytes) -> bytes:
        context = self._context
        hello = m.Hello(
            protocol=m.PROTOCOL,
            oldest=m.OLDEST_PROTOCOL,
            run=context.run,
            service=self._service,
            name=self._name,
            incarnation=context.incarnation,
            host=host_identity() if SHM_AVAILABLE and context.memory else "",
            schema=self.schema.encoded if self.schema else b"",
            body=body,
        )
        message = m.encode(m.HELLO, hello)
        if len(message) > m.MAX_HEADER_BYTES:
            raise UserError(
                f"a hello of {len(message):,} bytes is larger than {m.MAX_HEADER_BYTES:,}: the schema has too many arrays",
                fix="join some of them",
            )
        return message

    def _await_welcome(self, transport: ZmqClientTransport, deadline: float) -> m.Welcome | None:
        while True:
            if self.interruptible:
                self._context.stop.check()
            received = transport.receive()
            if received is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    transport.check_connection()  # a caller that polls never waits, and would not notice a break
                    if time.monotonic() - self._handshake_failed_at > _ATTEMPT_TIMEOUT:
                        self.reason = f"nobody answers at {self.address}"
                    return None
                transport.wait(left)
                continue
            message, _, kind, _, _ = received
            if kind == m.WELCOME:
                return m.decode_welcome(message)
            if kind == m.REFUSAL:
                refusal = m.decode_refusal(message)
                self.reason = refusal.reason
                if not refusal.retryable:
                    raise self._refused(refusal)
                self._expires_at = 0.0
                return None

    def _refused(self, refusal: m.Refusal) -> Refused:
        text = f"endpoint {self.endpoint!r} at {self.address} refused {self._name}: {refusal.reason}"
        with contextlib.suppress(ValueError):
            if refusal.schema and self.schema:
                text += f" ({self.schema.difference(Schema.decode(refusal.schema))})"
        log.error("%s", text)
        return Refused(text, fix=refusal.fix or "both sides must agree; check their logs")

    def _upgrade_to_shm(
        self,
        transport: ZmqClientTransport,
        handshake: ShmHandshakeClient,
        welcome: m.Welcome,
        deadline: float,
    ) -> tuple[LinkTransport, m.Welcome] | None:
        """Upgrade to shared memory. If the listener is busy, wait for it in this call and the next ones."""
        self._expires_at = handshake.expires_at
        upgraded: LinkTransport = transport
        try:
            while not handshake.advance():
                if self.interruptible:
                    self._context.stop.check()
                transport.check_connection(reads=False)
                left = min(deadline, self._expires_at) - time.monotonic()
                if left <= 0:
                    self.reason = f"the process at {self.address} is busy with something else"
                    return None
                handshake.wait(min(left, 1.0), self._context.stop.fd if self.interruptible else -1)
            upgraded = ShmTransport(handshake.socket)
        except (ConnectionResetError, BrokenPipeError):
            raise Disconnected from None  # the listener died during the handshake
        except OSError as error:
            handshake.close()
            if not self._warned_no_shm:
                self._warned_no_shm = True
                log.warning(
                    "endpoint %s: no shared memory with %s (%s), using the network",
                    self.endpoint,
                    self.address,
                    error,
                )
        self._upgrading = self._pending = None
        self._handshake_failed_at = self._handshake_failing_since = 0.0
        if upgraded is not transport:
            transport.close()
        return upgraded, welcome
