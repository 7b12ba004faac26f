"""A message with arrays, as it was received: views onto the sender's memory until it is given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from callsheet.runtime.link.messages import NO_BLOCK, BadMessage, Header
from callsheet.runtime.link.parts import Parts
from callsheet.runtime.schema import Layout, Schema

MOST_ITEMS = 1 << 20
_NOTHING = memoryview(b"")


class Frame:
    """A received header and payload. The arrays are read-only and valid until `release`."""

    __slots__ = ("_release", "block", "header", "payload", "peer")

    def __init__(
        self,
        header: Header,
        payload: memoryview | Parts,
        block: int,
        peer: Any,
        release: Callable[[int], None],
    ) -> None:
        self.header = header
        self.payload = payload
        self.block = block
        self.peer = peer
        """Who sent it, on the listener's side."""
        self._release = release

    def layout(self, schema: Schema) -> Layout:
        """Where the arrays lie in the payload, when it is what the schema says."""
        header = self.header
        if header.schema != schema.hash:
            raise BadMessage(f"a payload of schema {header.schema:x} instead of {schema.hash:x}")
        if not 0 <= header.count <= MOST_ITEMS:
            raise BadMessage(f"{header.count} items")
        try:
            layout = schema.layout(header.count, header.shapes)
        except ValueError as error:
            raise BadMessage(str(error)) from None
        if layout.nbytes != len(self.payload):
            raise BadMessage(f"{len(self.payload)} bytes where {layout.nbytes} were announced")
        return layout

    def arrays(self, schema: Schema) -> dict[str, np.ndarray]:
        """The payload as arrays `[count, *shape]`, when it is what the schema says."""
        return self.layout(schema).views(self.whole())

    def whole(self) -> memoryview:
        """The payload in one piece."""
        if isinstance(self.payload, Parts):
            self.payload = self.payload.joined()
        return self.payload

    def release(self) -> None:
        """Give the sender its block back; the arrays must not be used any more."""
        if self.block != NO_BLOCK:
            block, self.block = self.block, NO_BLOCK
            self.payload = _NOTHING
            self._release(block)
