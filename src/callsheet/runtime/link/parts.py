"""A payload that came over the network in several parts: put together once, where its bytes are wanted.

Large payloads travel in parts, so that no stranger can make a process take in more than one of them. Whoever copies the
arrays somewhere else anyway copies them straight from the parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from callsheet.runtime.link.messages import LARGEST_PART, BadMessage


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
