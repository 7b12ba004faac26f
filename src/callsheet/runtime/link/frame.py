"""A received message with arrays: read-only views of the sender's memory until it is released."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callsheet.runtime.link.protocol import MAX_PART_BYTES, NO_BLOCK, BadMessage, Header
from callsheet.runtime.schema import FrameLayout, Schema

MAX_ITEMS = 1 << 20
_NOTHING = memoryview(b"")


class MultipartPayload:
    """A large payload that arrived in several ZeroMQ parts, all of them full except the last. Readers that copy the
    arrays anyway copy straight from the parts; others join them once."""

    __slots__ = ("_parts", "nbytes")

    def __init__(self, parts: Sequence[memoryview], nbytes: int) -> None:
        for number, part in enumerate(parts):
            size = min(MAX_PART_BYTES, nbytes - number * MAX_PART_BYTES)
            if len(part) != size:
                raise BadMessage(f"a part of {len(part)} bytes where {size} belong")
        self._parts = parts
        self.nbytes = nbytes

    def __len__(self) -> int:
        return self.nbytes

    def join(self) -> memoryview:
        """The payload in contiguous memory."""
        whole = np.empty(self.nbytes, np.uint8).data
        for number, part in enumerate(self._parts):
            at = number * MAX_PART_BYTES
            whole[at : at + len(part)] = part
        return whole

    def copy(self, start: int, into: np.ndarray) -> None:
        """Fill an array of any strides with the bytes from `start` on."""
        size = into.nbytes
        if not size:
            return
        first, last = start // MAX_PART_BYTES, (start + size - 1) // MAX_PART_BYTES
        if first == last:
            offset = start - first * MAX_PART_BYTES
            into[...] = np.ndarray(into.shape, into.dtype, self._parts[first], offset)
            return
        if into.flags.c_contiguous:
            self._copy_bytes(start, into)
            return
        row = size // len(into)
        at = 0
        while at < len(into):
            here = start + at * row
            number, offset = divmod(here, MAX_PART_BYTES)
            whole = min((len(self._parts[number]) - offset) // row, len(into) - at)
            if whole:
                shape = (whole, *into.shape[1:])
                into[at : at + whole] = np.ndarray(shape, into.dtype, self._parts[number], offset)
            else:  # this row spans several parts
                whole = 1
                row_copy = np.empty(into.shape[1:], into.dtype)
                self._copy_bytes(here, row_copy)
                into[at] = row_copy
            at += whole

    def _copy_bytes(self, start: int, array: np.ndarray) -> None:
        into = array.reshape(-1).view(np.uint8).data
        done = 0
        while done < len(into):
            number, offset = divmod(start + done, MAX_PART_BYTES)
            size = min(len(into) - done, MAX_PART_BYTES - offset)
            into[done : done + size] = self._parts[number][offset : offset + size]
            done += size


class Frame:
    """A received header and payload. The arrays are read-only and valid until `release`."""

    __slots__ = ("_release", "block", "header", "payload", "peer")

    def __init__(
        self,
        header: Header,
        payload: memoryview | MultipartPayload,
        block: int,
        peer: Any,
        release: Callable[[int], None],
    ) -> None:
        self.header = header
        self.payload = payload
        self.block = block
        self.peer = peer
        """The sender, on the listener's side."""
        self._release = release

    def layout(self, schema: Schema) -> FrameLayout:
        """Where the arrays lie in the payload; `BadMessage` if it does not match the schema."""
        header = self.header
        if header.schema != schema.hash:
            raise BadMessage(f"a payload of schema {header.schema:x} instead of {schema.hash:x}")
        if not 0 <= header.count <= MAX_ITEMS:
            raise BadMessage(f"{header.count} items")
        try:
            layout = schema.layout(header.count, header.shapes)
        except ValueError as error:
            raise BadMessage(str(error)) from None
        if layout.nbytes != len(self.payload):
            raise BadMessage(f"{len(self.payload)} bytes where {layout.nbytes} were announced")
        return layout

    def arrays(self, schema: Schema) -> dict[str, np.ndarray]:
        """The payload as arrays `[count, *shape]`; `BadMessage` if it does not match the schema."""
        return self.layout(schema).views(self.contiguous())

    def contiguous(self) -> memoryview:
        """The payload in contiguous memory."""
        if isinstance(self.payload, MultipartPayload):
            self.payload = self.payload.join()
        return self.payload

    def release(self) -> None:
        """Return the block to the sender; the arrays must not be used afterwards."""
        if self.block != NO_BLOCK:
            block, self.block = self.block, NO_BLOCK
            self.payload = _NOTHING
            self._release(block)
