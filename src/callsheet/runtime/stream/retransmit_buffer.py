"""Sent items that are not durable yet, kept for retransmission in a ring buffer of fixed size."""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from dataclasses import dataclass

from callsheet.runtime.schema import ALIGNMENT


@dataclass(slots=True)
class Chunk:
    """One frame in the buffer."""

    offset: int
    capacity: int
    length: int = 0
    first: int = 0
    """Sequence number of its first item."""
    count: int = 0
    version: int = 0

    @property
    def last(self) -> int:
        """Sequence number of its last item."""
        return self.first + self.count - 1


class RetransmitBuffer:
    """Chunks are added at one end and removed at the other. Memory is allocated as it is first used."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // ALIGNMENT) * ALIGNMENT
        self._memory = mmap.mmap(-1, self.size)
        self._view = memoryview(self._memory)
        self._end = 0
        self.chunks: deque[Chunk] = deque()

    @property
    def used(self) -> int:
        """Bytes in the buffer. Other threads call this too, hence the copy of the deque."""
        return sum(chunk.length for chunk in list(self.chunks))

    def add(self, capacity: int) -> Chunk | None:
        """Space for another frame; None if there is not enough."""
        if not self.chunks:
            offset = 0
        else:
            begin = self.chunks[0].offset
            if self._end > begin:
                offset = self._end if self.size - self._end >= capacity else 0
                if offset == 0 and capacity > begin:
                    return None
            else:
                offset = self._end
                if begin - offset < capacity:
                    return None
        if capacity > self.size:
            return None
        chunk = Chunk(offset, capacity)
        self._end = offset + capacity
        self.chunks.append(chunk)
        return chunk

    def trim(self, chunk: Chunk) -> None:
        """Shrink the last chunk to its length."""
        chunk.capacity = -(-chunk.length // ALIGNMENT) * ALIGNMENT
        self._end = chunk.offset + chunk.capacity

    def view(self, chunk: Chunk) -> memoryview:
        """A chunk's memory."""
        return self._view[chunk.offset : chunk.offset + chunk.capacity]

    def discard_up_to(self, sequence: int) -> None:
        """Remove the chunks whose items all have this sequence number or a lower one."""
        while self.chunks and self.chunks[0].count and self.chunks[0].last <= sequence:
            self.chunks.popleft()

    def close(self) -> None:
        """Free the memory."""
        self.chunks.clear()
        self._view = memoryview(b"")
        with contextlib.suppress(BufferError):  # an array still uses it: freed with that array
            self._memory.close()
