"""A message with arrays, as it was received: views onto the sender's memory until it is given back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callsheet.runtime.link.protocol import LARGEST_PART, NO_BLOCK, BadMessage, Header
from callsheet.runtime.schema import Layout, Schema

MOST_ITEMS = 1 << 20
_NOTHING = memoryview(b"")


class Parts:
    """The parts of one payload: all of them full but the last."""

    __slots__ = ("_parts", "nbytes")

    def __init__(self, parts: Sequence[memoryview], nbytes: int) -> None:
        for number, part in enumerate(parts):
            size = min(LARGEST_PART, nbytes - number * LARGEST_PART)
            if len(part) != size:
                raise BadMessage(f"a part of {len(part)} bytes where {size} belong")
        self._parts = parts
        self.nbytes = nbytes

    def __len__(self) -> int:
        return self.nbytes

    def joined(self) -> memoryview:
        """All of it in one piece of memory."""
        whole = np.empty(self.nbytes, np.uint8).data
        for number, part in enumerate(self._parts):
            at = number * LARGEST_PART
            whole[at : at + len(part)] = part
        return whole

    def copy(self, start: int, into: np.ndarray) -> None:
        """Fill an array of any strides with the bytes from `start` on."""
        size = into.nbytes
        if not size:
            return
        first, last = start // LARGEST_PART, (start + size - 1) // LARGEST_PART
        if first == last:
            offset = start - first * LARGEST_PART
            into[...] = np.ndarray(into.shape, into.dtype, self._parts[first], offset)
            return
        if into.flags.c_contiguous:
            self._copy_bytes(start, into)
            return
        row = size // len(into)
        at = 0
        while at < len(into):
            here = start + at * row
            number, offset = divmod(here, LARGEST_PART)
            whole = min((len(self._parts[number]) - offset) // row, len(into) - at)
            if whole:
                shape = (whole, *into.shape[1:])
                into[at : at + whole] = np.ndarray(shape, into.dtype, self._parts[number], offset)
            else:  # this one lies in two parts, or in more
                whole = 1
                one = np.empty(into.shape[1:], into.dtype)
                self._copy_bytes(here, one)
                into[at] = one
            at += whole

    def _copy_bytes(self, start: int, array: np.ndarray) -> None:
        into = array.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(into):
            number, offset = divmod(start + done, LARGEST_PART)
            size = min(len(into) - done, LARGEST_PART - offset)
            into[done : done + size] = self._parts[number][offset : offset + size]
            done += size


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
