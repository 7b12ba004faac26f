"""How a link comes about: hello over the network, then memory in its place where both sides share a machine."""

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
from callsheet.runtime.link.blocks import CAN_SHARE
from callsheet.runtime.link.frame import Parts
from callsheet.runtime.link.shm_handshake import Entry, host_identity
from callsheet.runtime.link.transport import Full, Lost, MemoryWire, NetworkWire, parse, take
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
_SAY_AFTER = 5.0
_SAY_AGAIN = 60.0
_ASK = 2.0
"""Seconds between two questions whether the listener still knows us."""
_PATIENCE = 60.0
"""Seconds that a try is given. A listener may be busy, or have a thousand others to welcome: who starts over only makes
that longer. When the connection breaks, another try is made at once."""
_QUICK = 2.0
"""Seconds within which a listener hangs up on a key that it does not know; later, it had no time for the handshake."""


class Refused(CallsheetError):
    """The other side does not want this link, and will not want it later."""

    exit_code = 2


def _readable(zmq_socket: zmq.Socket[Any]) -> bool:
    return bool(int(zmq_socket.getsockopt(zmq.EVENTS)) & _POLLIN)


class NetworkEnd(NetworkWire):
    """A link's own end of a connection over ZeroMQ, which knows when it breaks."""

    def __init__(self, context: Context, address: str, *, heeds_stop: bool) -> None:
        self.zmq = context.sockets.link(address)
        self.monitor: zmq.Socket[Any] = self.zmq.get_monitor_socket(_EVENTS)
        super().__init__(self.zmq)
        try:
            self.zmq.connect(f"tcp://{address}")
        except zmq.ZMQError as error:
            self.close()
            raise UserError(
                f"{address!r} is no address to connect to: {error.strerror}", fix="write host:port"
            ) from None
        self._stop = context.stop.fd if heeds_stop else -1
        self._poll = select.poll()
        self._poll.register(int(self.zmq.getsockopt(zmq.FD)), select.POLLIN)
        self._poll.register(int(self.monitor.getsockopt(zmq.FD)), select.POLLIN)
        if heeds_stop:
            self._poll.register(self._stop, select.POLLIN)
        self.handshake_failed = False
        self._asked = self._connected = time.monotonic()

    def receive(self) -> tuple[bytes, memoryview | Parts, int, int, int] | None:
        """The next message; None when there is none now."""
        try:
            return parse(take(self.zmq)) if _readable(self.zmq) else None
        except zmq.Again:
            return None
        except (zmq.ZMQError, m.BadMessage):
            raise Lost from None

    def wait(self, seconds: float) -> None:
        """Until something came, or the connection broke."""
        if not _readable(self.zmq) and not _readable(self.monitor):  # else a signal may have been used up
            self._poll.poll(seconds * 1000)
        self.look()

    def look(self, *, reads: bool = True) -> None:
        """Notice that the connection broke. One that the listener has given up looks whole from here, so it is asked
        now and then: it answers those whom it does not know. A caller who reads hears the listener's last words
        before it hears of the end."""
        now = time.monotonic()
        if now - self._asked > _ASK:
            self._asked = now
            with contextlib.suppress(Full):
                self.send(m.encode(m.ALIVE))
        while _readable(self.monitor) and not (reads and _readable(self.zmq)):
            event = recv_monitor_message(self.monitor, zmq.NOBLOCK)["event"]
            if event == zmq.EVENT_CONNECTED:
                self._connected = now
                continue
            quick = now - self._connected < _QUICK
            self.handshake_failed = event != zmq.EVENT_DISCONNECTED and (
                quick or event != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
            )
            raise Lost

    def ignore_stop(self) -> None:
        """From now on waits go on although the process should stop."""
        if self._stop >= 0:
            self._poll.unregister(self._stop)
            self._stop = -1

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(zmq.ZMQError):
            self.zmq.disable_monitor()
            self.monitor.close(0)
        super().close()


class Dialler:
    """Makes connections to one address, again and again."""

    def __init__(
        self, context: Context, endpoint: str, address: str, pattern: str, schema: Schema | None
    ) -> None:
        self._context = context
        self._pattern = pattern
        self.schema = schema
        self._fell_back = False
        self._name = context.link_name(endpoint, address)
        self.heeds_stop = True
        self.endpoint = endpoint
        self.address = address
        self.reason = "not connected yet"
        self._unmet = self._unmet_since = 0.0
        """When a handshake failed last, and since when all of them have; 0 when one did not."""
        self._said = 0.0
        self._down = 0.0
        self._begun: NetworkEnd | None = None
        self._entering: tuple[Entry, m.Welcome] | None = None
        self._about = (b"", True)
        self._over = 0.0

    def dial(self, body: bytes, until: float) -> tuple[MemoryWire | NetworkEnd, m.Welcome] | None:
        """One try, until then at the latest: the connection and what was said, or None with a `reason`. A try that was
        given little time goes on in the next call."""
        try:
            end = self._begin(body)
        except Full:  # ZeroMQ has given the connection up, as when one side encrypts and the other does not
            self.reason = "the connection broke"
            return None
        try:
            if self._entering is None:
                welcome = self._welcome(end, until)
                if welcome is not None and welcome.socket:
                    self._entering = (Entry(welcome.socket, welcome.token), welcome)
            if self._entering is not None:
                return self._enter(end, *self._entering, until)
        except Lost:
            if end.handshake_failed:
                self._unmet = time.monotonic()
                self._unmet_since = self._unmet_since or self._unmet
                self.reason = (
                    "the handshake fails: it has another key, or something on the way ends connections"
                )
            else:
                self._unmet = self._unmet_since = 0.0
                self.reason = "the connection broke"
            welcome = None
            self._over = 0.0
        except BaseException:
            self.close()
            raise
        if welcome is None:
            if time.monotonic() >= self._over:
                self.close()
            return None
        self._begun = None
        self._unmet = self._unmet_since = 0.0
        return end, welcome

    @property
    def unmet(self) -> float:
        """Seconds from the first to the last of the handshakes that failed in a row. Another key looks the same from
        here as a proxy that accepts connections for a listener that is away, or a wire that spoils bytes."""
        return self._unmet - self._unmet_since

    @property
    def under_way(self) -> bool:
        """Whether a try was begun and may still succeed."""
        return self._begun is not None and time.monotonic() < self._over

    def _begin(self, body: bytes) -> NetworkEnd:
        about = (body, self.heeds_stop)
        if self._begun is not None and self.under_way and self._about == about:
            return self._begun
        self.close()
        self._begun = end = NetworkEnd(self._context, self.address, heeds_stop=self.heeds_stop)
        self._about, self._over = about, time.monotonic() + _PATIENCE
        try:
            end.send(self._hello(body))
        except BaseException:
            self.close()
            raise
        return end

    def say(self, down: float) -> None:
        """Log, now and then, that the connection has been missing for so many seconds."""
        now = time.monotonic()
        if down < self._down:
            self._said = 0.0  # another time that it is missing
        self._down = down
        if down > _SAY_AFTER and (not self._said or now - self._said > _SAY_AGAIN):
            self._said = now
            log.warning("waiting for %s at %s for %.0f s: %s", self.endpoint, self.address, down, self.reason)

    def close(self) -> None:
        """Give up a try that is under way."""
        if self._entering is not None:
            self._entering[0].close()
            self._entering = None
        if self._begun is not None:
            self._begun.close()
            self._begun = None

    def _hello(self, body: bytes) -> bytes:
        context = self._context
        hello = m.Hello(
            protocol=m.PROTOCOL,
            oldest=m.OLDEST,
            run=context.run,
            pattern=self._pattern,
            name=self._name,
            incarnation=context.incarnation,
            host=host_identity() if CAN_SHARE and context.memory else "",
            schema=self.schema.encoded if self.schema else b"",
            body=body,
        )
        message = m.encode(m.HELLO, hello)
        if len(message) > m.LARGEST_HEADER:
            raise UserError(
                f"a hello of {len(message):,} bytes is larger than {m.LARGEST_HEADER:,}: the schema has too many arrays",
                fix="join some of them",
            )
        return message

    def _welcome(self, end: NetworkEnd, until: float) -> m.Welcome | None:
        while True:
            if self.heeds_stop:
                self._context.stop.check()
            found = end.receive()
            if found is None:
                left = until - time.monotonic()
                if left <= 0:
                    end.look()  # who tries in small steps never waits, and would not notice that it broke
                    if time.monotonic() - self._unmet > _PATIENCE:  # else it is known why
                        self.reason = f"nobody answers at {self.address}"
                    return None
                end.wait(left)
                continue
            message, _, kind, _, _ = found
            if kind == m.WELCOME:
                return m.welcome_of(message)
            if kind == m.REFUSAL:
                no = m.refusal_of(message)
                self.reason = no.reason
                if not no.again:
                    raise self._refused(no)
                self._over = 0.0
                return None

    def _refused(self, no: m.Refusal) -> Refused:
        text = f"endpoint {self.endpoint!r} at {self.address} refused {self._name}: {no.reason}"
        with contextlib.suppress(ValueError):
            if no.schema and self.schema:
                text += f" ({self.schema.difference(Schema.decode(no.schema))})"
        log.error("%s", text)
        return Refused(text, fix=no.fix or "both sides must agree; see the logs of both")

    def _enter(
        self, end: NetworkEnd, entry: Entry, welcome: m.Welcome, until: float
    ) -> tuple[MemoryWire | NetworkEnd, m.Welcome] | None:
        """From the network to memory. A listener that is busy is waited for, in this call and in the next."""
        self._over = entry.over
        found: MemoryWire | NetworkEnd = end
        try:
            while not entry.step():
                if self.heeds_stop:
                    self._context.stop.check()
                end.look(reads=False)
                left = min(until, self._over) - time.monotonic()
                if left <= 0:
                    self.reason = f"the process at {self.address} is busy with something else"
                    return None
                entry.wait(min(left, 1.0), self._context.stop.fd if self.heeds_stop else -1)
            found = MemoryWire(entry.socket)
        except (ConnectionResetError, BrokenPipeError):
            raise Lost from None  # the listener died at the door
        except OSError as error:
            entry.close()
            if not self._fell_back:
                self._fell_back = True
                log.warning(
                    "endpoint %s: no memory from %s (%s), the network is used",
                    self.endpoint,
                    self.address,
                    error,
                )
        self._entering = self._begun = None
        self._unmet = self._unmet_since = 0.0
        if found is not end:
            end.close()
        return found, welcome
