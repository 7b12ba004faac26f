"""What distinguishes one listener from another: its service, whom it accepts, and what it counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from callsheet.runtime.link import protocol as m
from callsheet.runtime.schema import Schema

if TYPE_CHECKING:
    from callsheet.runtime.link.peer import Peer


_MAX_LOGGED: Final = 100
_RESET_AFTER: Final = 60.0


class LogThrottle:
    """Logs each message once, and at most a hundred different ones per minute, whatever peers send."""

    def __init__(self) -> None:
        self._logged: set[int] = set()
        self._since = time.monotonic()

    def should_log(self, what: str) -> bool:
        """Whether to log this message."""
        now = time.monotonic()
        if len(self._logged) >= _MAX_LOGGED and now - self._since > _RESET_AFTER:
            self._logged.clear()
        key = hash(what)
        if key in self._logged or len(self._logged) >= _MAX_LOGGED:
            return False
        if not self._logged:
            self._since = now
        self._logged.add(key)
        return True


class RefuseLink(Exception):
    """Raised by a handler to refuse a link. The reason is sent to the peer."""

    def __init__(self, reason: str, *, schema: Schema | None = None, retryable: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.schema = schema
        self.retryable = retryable


@dataclass
class ListenerStats:
    """Counters of a listener, read by the metrics."""

    frames: int = 0
    bytes: int = 0
    bytes_via_shm: int = 0
    hellos: int = 0
    refused: int = 0
    protocol_errors: int = 0
    lost: int = 0


@dataclass
class EndpointHandler:
    """The callbacks of a listener."""

    service: str
    accept: Callable[[m.Hello, Schema | None], bytes] = lambda hello, schema: b""
    """Checks a hello: returns the body of the welcome, or raises `RefuseLink`."""
    on_disconnect: Callable[[Peer], None] = lambda peer: None
    """Called when a peer has disconnected."""
    expected_schema: Callable[[], Schema | None] = lambda: None
    """What peers should send, if known; sent to them in the welcome."""

    def check(self, hello: m.Hello, run: str, endpoint: str) -> Schema | None:
        """The schema a link will send, if it belongs to this run and service; otherwise `RefuseLink`."""
        if hello.oldest > m.PROTOCOL or hello.protocol < m.OLDEST_PROTOCOL:
            raise RefuseLink(
                f"it speaks versions {hello.oldest} to {hello.protocol} of the protocol, this side {m.OLDEST_PROTOCOL} to {m.PROTOCOL}; "
                "use images of the same Callsheet version"
            )
        if hello.run != run:
            raise RefuseLink(f"it belongs to run {hello.run!r}, this is run {run!r}")
        if hello.service != self.service:
            raise RefuseLink(
                f"it asks for {hello.service!r} where endpoint {endpoint!r} offers {self.service!r}"
            )
        if not hello.schema:
            return None
        known = self.expected_schema()
        if known is not None and hello.schema == known.encoded:
            return known
        try:
            return Schema.decode(hello.schema)
        except ValueError as error:
            raise RefuseLink(str(error)) from None
