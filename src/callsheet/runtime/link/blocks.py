"""Blocks of memory that one process fills and another reads: anonymous files that vanish with the last who holds them.

The sender makes a block and seals its size, so that a reader can never be cut off in the middle of a read. Where the
system has no such files, blocks are plain memory and travel by the network.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from dataclasses import dataclass, field

from callsheet.runtime.link.huge_pages import LARGE, enlarge, mapped, rounded
from callsheet.runtime.link.protocol import LARGEST_PAYLOAD, MOST_BLOCKS, MOST_MEMORY, BadMessage

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if hasattr(fcntl, "F_SEAL_SHRINK") else 0
CAN_SHARE = hasattr(os, "memfd_create") and _SEALS != 0
_ROUND = 64 * 1024


@dataclass(eq=False, slots=True)
class Block:
    """Memory of ours that is filled, sent, and given back."""

    index: int
    memory: mmap.mmap | None = None
    size: int = 0
    fd: int = -1
    shown: bool = False
    """Whether the peer on the current connection has it."""
    view: memoryview = field(default_factory=lambda: memoryview(b""))

    def grow(self, size: int) -> None:
        """Make it at least so large; what it held is gone."""
        if size > LARGEST_PAYLOAD:
            raise ValueError(f"a frame of {size:,} bytes is larger than {LARGEST_PAYLOAD:,}")
        if size <= self.size:
            return
        self.close()
        size = rounded(size, _ROUND)
        if CAN_SHARE:
            self.fd = os.memfd_create("callsheet", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, size)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
            self.memory, self.view = mapped(self.fd, size, mmap.PROT_READ | mmap.PROT_WRITE)
            enlarge(self.memory, self.view)
        else:
            self.memory = mmap.mmap(-1, size)
            self.view = memoryview(self.memory)
        self.size = size
        self.shown = False

    def close(self) -> None:
        """Give the memory up: at once, or when the last array that shows it is gone."""
        self.view = memoryview(b"")
        if self.memory is not None:
            with contextlib.suppress(BufferError):
                self.memory.close()
        if self.fd >= 0:
            os.close(self.fd)
        self.memory, self.size, self.fd, self.shown = None, 0, -1, False


class Blocks:
    """The blocks of one side of one connection: the last one given back is used first, while it is in the cache."""

    def __init__(self, count: int) -> None:
        self._all = [Block(index) for index in range(count)]
        self._most = count
        self._free = list(reversed(self._all))

    def __len__(self) -> int:
        return len(self._all)

    @property
    def free(self) -> int:
        """How many can be taken."""
        return len(self._free)

    def take(self, size: int) -> Block | None:
        """A free block of at least so many bytes."""
        if not self._free or self._too_much(size):
            return None
        block = self._free.pop()
        block.grow(size)
        return block

    def _too_much(self, size: int) -> bool:
        """Whether the peer would have to map more than it does: it takes more when it has given something back."""
        more = size - self._free[-1].size
        in_use = len(self._all) - len(self._free)
        return more > 0 and in_use > 0 and sum(one.size for one in self._all) + more + LARGE > MOST_MEMORY

    def give_back(self, block: Block) -> None:
        """It is free again; unless there are more of them than the peer allows."""
        if len(self._all) > self._most:
            self._all.remove(block)
            block.close()
        else:
            self._free.append(block)

    def limit(self, count: int) -> None:
        """Have so many at most, which is what the peer allows: now, or as soon as those in use are given back."""
        self._most = min(self._most, max(1, count))
        while len(self._all) > self._most and self._free:
            block = self._free.pop(0)
            block.close()
            self._all.remove(block)

    def hide(self) -> None:
        """A new connection: its peer has none of them yet."""
        for block in self._all:
            block.shown = False

    def close(self) -> None:
        """Give all memory up."""
        for block in self._all:
            block.close()


class Mapped:
    """A peer's blocks, as we see them: read-only."""

    def __init__(self) -> None:
        self._views: dict[int, memoryview] = {}
        self._maps: dict[int, mmap.mmap] = {}
        self._bytes = 0

    def add(self, index: int, fd: int) -> None:
        """Map a new block in place of the one with this number; takes the descriptor."""
        try:
            if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
                raise BadMessage("a block whose size is not sealed")
            if os.fstatvfs(fd).f_bsize != mmap.PAGESIZE:  # a hole in it would end whoever looks there
                raise BadMessage("a block of reserved huge pages")
            size = os.fstat(fd).st_size
            if not 0 < size <= LARGEST_PAYLOAD + LARGE or index >= MOST_BLOCKS:
                raise BadMessage(f"block {index} of {size} bytes")
            self._drop(index)
            if self._bytes + size > MOST_MEMORY:
                raise BadMessage(f"blocks of more than {MOST_MEMORY} bytes")
            self._maps[index], self._views[index] = mapped(fd, size, mmap.PROT_READ)
            self._bytes += size
        except OSError as error:
            raise BadMessage(f"a block that cannot be mapped: {error}") from None
        finally:
            os.close(fd)

    def view(self, index: int, length: int) -> memoryview:
        """The first bytes of a block."""
        found = self._views.get(index)
        if found is None or length > len(found):
            raise BadMessage(
                f"{length} bytes of block {index}, which has {0 if found is None else len(found)}"
            )
        return found[:length]

    def _drop(self, index: int) -> None:
        self._bytes -= len(self._views.pop(index, b""))
        old = self._maps.pop(index, None)
        if old is not None:
            with contextlib.suppress(BufferError):  # an array still shows it: freed with that array
                old.close()

    def close(self) -> None:
        """Forget all of them."""
        for index in list(self._maps):
            self._drop(index)
