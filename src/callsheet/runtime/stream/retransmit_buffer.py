"""What was sent but is not durable yet, kept to be sent again: a ring of memory of a fixed size."""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from dataclasses import dataclass

from callsheet.runtime.schema import ALIGNMENT


@dataclass(slots=True)
class Chunk:
    """One frame in the ring."""

    offset: int
    capacity: int
    length: int = 0
    first: int = 0
    """Sequence of its first item."""
    count: int = 0
    version: int = 0

    @property
    def last(self) -> int:
        """Sequence of its last item."""
        return self.first + self.count - 1


class RetransmitBuffer:
    """Chunks are added at one end and forgotten at the other. Its memory is taken as it is filled, once."""

    def __init__(self, size: int) -> None:
        self.size = -(-size // ALIGNMENT) * ALIGNMENT
        self._memory = mmap.mmap(-1, self.size)
        self._view = memoryview(self._memory)
        self._end = 0
        self.chunks: deque[Chunk] = deque()

    @property
    def used(self) -> int:
        """Bytes that are kept. Also for other threads, hence the copy: a deque must not change while it is summed up."""
        return sum(chunk.length for chunk in list(self.chunks))

    def add(self, capacity: int) -> Chunk | None:
        """Room for a frame behind the others; None when there is not enough."""
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
        """The last chunk needs no more than its length."""
        chunk.capacity = -(-chunk.length // ALIGNMENT) * ALIGNMENT
        self._end = chunk.offset + chunk.capacity

    def view(self, chunk: Chunk) -> memoryview:
        """A chunk's memory."""
        return self._view[chunk.offset : chunk.offset + chunk.capacity]

    def discard_up_to(self, sequence: int) -> None:
        """Forget the chunks whose items are all up to this sequence."""
        while self.chunks and self.chunks[0].count and self.chunks[0].last <= sequence:
            self.chunks.popleft()

    def close(self) -> None:
        """Give the memory up."""
        self.chunks.clear()
        self._view = memoryview(b"")
        with contextlib.suppress(BufferError):  # an array still shows it: freed with that array
            self._memory.close()
