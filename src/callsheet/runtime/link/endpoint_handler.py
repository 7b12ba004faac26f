"""What a listener is for: which links it wants, what it tells them, and what it has seen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from callsheet.runtime.link import protocol as m
from callsheet.runtime.schema import Schema

if TYPE_CHECKING:
    from callsheet.runtime.link.peer import Peer


LONGEST_REASON: Final = 2000
"""Characters of a refusal: it repeats what the peer said."""
_MOST_NOTED: Final = 100
_NOTED: Final = 60.0


class Noted:
    """What is logged once only: a hundred different things in a minute, whatever peers may say."""

    def __init__(self) -> None:
        self._said: set[int] = set()
        self._since = time.monotonic()

    def news(self, what: str) -> bool:
        """Whether this should be logged."""
        now = time.monotonic()
        if len(self._said) >= _MOST_NOTED and now - self._since > _NOTED:
            self._said.clear()
        key = hash(what)
        if key in self._said or len(self._said) >= _MOST_NOTED:
            return False
        if not self._said:
            self._since = now
        self._said.add(key)
        return True


class Refuse(Exception):
    """Raised by a pattern that does not want a link: the reason is told to it."""

    def __init__(self, reason: str, *, schema: Schema | None = None, again: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.schema = schema
        self.again = again


@dataclass
class Counts:
    """What a listener has seen; read by the metrics."""

    frames: int = 0
    bytes: int = 0
    bytes_by_memory: int = 0
    hellos: int = 0
    refused: int = 0
    expelled: int = 0
    lost: int = 0


@dataclass
class Pattern:
    """What a listener is for."""

    name: str
    accept: Callable[[m.Hello, Schema | None], bytes] = lambda hello, schema: b""
    """Looks at a hello: what else to say in the welcome, or raises `Refuse`."""
    gone: Callable[[Peer], None] = lambda peer: None
    """A peer is no longer there."""
    takes: Callable[[], Schema | None] = lambda: None
    """What peers should send, as far as it is known: told to them in the welcome."""

    def check(self, hello: m.Hello, run: str, endpoint: str) -> Schema | None:
        """What a link will send, when it is one of this run and for this endpoint; else `Refuse`."""
        if hello.oldest > m.PROTOCOL or hello.protocol < m.OLDEST:
            raise Refuse(
                f"it speaks versions {hello.oldest} to {hello.protocol} of the protocol, this side {m.OLDEST} to {m.PROTOCOL}; "
                "use images of the same Callsheet version"
            )
        if hello.run != run:
            raise Refuse(f"it belongs to run {hello.run!r}, this is run {run!r}")
        if hello.pattern != self.name:
            raise Refuse(f"it asks for {hello.pattern!r} where endpoint {endpoint!r} offers {self.name!r}")
        if not hello.schema:
            return None
        known = self.takes()
        if known is not None and hello.schema == known.encoded:
            return known
        try:
            return Schema.decode(hello.schema)
        except ValueError as error:
            raise Refuse(str(error)) from None
