"""Blocks of shared memory that one process fills and another reads: anonymous files that vanish with their last user.

The sender seals a block's size, so a reader can never hit a truncated map. Where memfd is not available, blocks are
plain memory and their content travels over the network.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from dataclasses import dataclass, field

from callsheet.runtime.link.huge_pages import HUGE_PAGE, map_aligned, request_huge_pages, round_up
from callsheet.runtime.link.protocol import MAX_BLOCKS, MAX_MAPPED_BYTES, MAX_PAYLOAD_BYTES, BadMessage

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL if hasattr(fcntl, "F_SEAL_SHRINK") else 0
SHM_AVAILABLE = hasattr(os, "memfd_create") and _SEALS != 0
_ROUNDING = 64 * 1024
_NOTHING = memoryview(b"")


@dataclass(eq=False, slots=True)
class Block:
    """Memory of ours that we fill, send, and get back."""

    index: int
    memory: mmap.mmap | None = None
    size: int = 0
    fd: int = -1
    shared: bool = False
    """Whether the peer of the current connection has mapped it."""
    view: memoryview = field(default_factory=lambda: memoryview(b""))

    def grow(self, size: int) -> None:
        """Make it at least `size` bytes; its content is lost."""
        if size > MAX_PAYLOAD_BYTES:
            raise ValueError(f"a frame of {size:,} bytes is larger than {MAX_PAYLOAD_BYTES:,}")
        if size <= self.size:
            return
        self.close()
        size = round_up(size, _ROUNDING)
        if SHM_AVAILABLE:
            self.fd = os.memfd_create("callsheet", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, size)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
            self.memory, self.view = map_aligned(self.fd, size, mmap.PROT_READ | mmap.PROT_WRITE)
            request_huge_pages(self.memory, self.view)
        else:
            self.memory = mmap.mmap(-1, size)
            self.view = memoryview(self.memory)
        self.size = size
        self.shared = False

    def close(self) -> None:
        """Free the memory, at once or with the last array that uses it."""
        self.view = memoryview(b"")
        if self.memory is not None:
            with contextlib.suppress(BufferError):
                self.memory.close()
        if self.fd >= 0:
            os.close(self.fd)
        self.memory, self.size, self.fd, self.shared = None, 0, -1, False


class BlockPool:
    """The blocks of one side of a connection. The block released last is reused first, while it is still cached."""

    def __init__(self, count: int) -> None:
        self._all = [Block(index) for index in range(count)]
        self._limit = count
        self._free = list(reversed(self._all))

    def __len__(self) -> int:
        return len(self._all)

    @property
    def free(self) -> int:
        """Number of blocks that can be taken."""
        return len(self._free)

    def take(self, size: int) -> Block | None:
        """A free block of at least `size` bytes, if there is one."""
        if not self._free or self._exceeds_peer_limit(size):
            return None
        block = self._free.pop()
        block.grow(size)
        return block

    def _exceeds_peer_limit(self, size: int) -> bool:
        """Whether the peer would have to map more than it accepts; it accepts more once it has released something."""
        more = size - self._free[-1].size
        in_use = len(self._all) - len(self._free)
        return (
            more > 0
            and in_use > 0
            and sum(block.size for block in self._all) + more + HUGE_PAGE > MAX_MAPPED_BYTES
        )

    def release_block(self, block: Block) -> None:
        """Reuse a block, unless the pool has shrunk meanwhile."""
        if len(self._all) > self._limit:
            self._all.remove(block)
            block.close()
        else:
            self._free.append(block)

    def shrink_to(self, count: int) -> None:
        """Keep at most `count` blocks, from now on or as soon as those in use are released."""
        self._limit = min(self._limit, max(1, count))
        while len(self._all) > self._limit and self._free:
            block = self._free.pop(0)
            block.close()
            self._all.remove(block)

    def mark_unshared(self) -> None:
        """A new connection: its peer has mapped none of them yet."""
        for block in self._all:
            block.shared = False

    def close(self) -> None:
        """Free all memory."""
        for block in self._all:
            block.close()


class MappedBlocks:
    """A peer's blocks, mapped read-only."""

    def __init__(self) -> None:
        self._views: dict[int, memoryview] = {}
        self._maps: dict[int, mmap.mmap] = {}
        self._bytes = 0

    def add(self, index: int, fd: int) -> None:
        """Map a new block in place of the one with this number; takes ownership of the descriptor."""
        try:
            if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
                raise BadMessage("a block whose size is not sealed")
            if os.fstatvfs(fd).f_bsize != mmap.PAGESIZE:  # touching a hole in it would kill the reader
                raise BadMessage("a block of reserved huge pages")
            size = os.fstat(fd).st_size
            if not 0 < size <= MAX_PAYLOAD_BYTES + HUGE_PAGE or index >= MAX_BLOCKS:
                raise BadMessage(f"block {index} of {size} bytes")
            self._drop(index)
            if self._bytes + size > MAX_MAPPED_BYTES:
                raise BadMessage(f"blocks of more than {MAX_MAPPED_BYTES} bytes")
            self._maps[index], self._views[index] = map_aligned(fd, size, mmap.PROT_READ)
            self._bytes += size
        except OSError as error:
            raise BadMessage(f"a block that cannot be mapped: {error}") from None
        finally:
            os.close(fd)

    def view(self, index: int, length: int) -> memoryview:
        """The first bytes of a block."""
        view = self._views.get(index, _NOTHING)
        if index not in self._views or length > len(view):
            raise BadMessage(f"{length} bytes of block {index}, which has {len(view)}")
        return view[:length]

    def _drop(self, index: int) -> None:
        self._bytes -= len(self._views.pop(index, b""))
        old = self._maps.pop(index, None)
        if old is not None:
            with contextlib.suppress(BufferError):  # an array still uses it: freed with that array
                old.close()

    def close(self) -> None:
        """Unmap all of them."""
        for index in list(self._maps):
            self._drop(index)
