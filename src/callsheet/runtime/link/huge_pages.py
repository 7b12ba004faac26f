"""Pages cost less when they are large, and when they are not asked for again and again.

Large pages for memory that processes share: a copy is up to half as long again when each 4 KiB must be looked up. Most
systems give large pages to memory that a process has for itself and not to shared memory, unless it is asked for
block by block (Linux 6.1). It needs whole, aligned large pages in the file and at both ends. Where it cannot be had,
everything works as it does with small ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from pathlib import Path

import numpy as np

LARGE = 2 * 1024 * 1024
_COLLAPSE = 25
"""MADV_COLLAPSE, which `mmap` has no name for."""
_MAP_FIXED = 0x10
_mmap = ctypes.CDLL(None).mmap
_mmap.restype = ctypes.c_size_t
_mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_kept: list[mmap.mmap] = []
_MOST = 32 * 1024 * 1024 - 64 * 1024
"""What glibc takes notice of at most, with room for what it adds."""


def _usable() -> bool:
    try:
        return int(Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").read_text()) == LARGE
    except (OSError, ValueError):
        return False


USABLE = _usable()


def rounded(size: int, step: int) -> int:
    """So many bytes in whole steps; in whole large pages if that is twice as much at most."""
    step = LARGE if USABLE and size >= LARGE // 2 else step
    return -(-size // step) * step


def mapped(fd: int, size: int, prot: int) -> tuple[mmap.mmap, memoryview]:
    """Map a file where large pages can be; its bytes may lie in the middle of the map."""
    if USABLE and size % LARGE == 0:
        memory = mmap.mmap(-1, size + LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=prot)
        start = np.frombuffer(memory, np.uint8).ctypes.data
        shift = -start % LARGE
        flags = mmap.MAP_SHARED | _MAP_FIXED
        if _mmap(start + shift, size, prot, flags, fd, 0) == start + shift:
            return memory, memoryview(memory)[shift : shift + size]
        _kept.append(memory)  # part of its place may be somebody else's now: it must not be given up
    memory = mmap.mmap(fd, size, prot=prot)
    return memory, memoryview(memory)


def enlarge(memory: mmap.mmap, view: memoryview) -> None:
    """Ask for large pages behind what was just mapped; both ends see them."""
    if USABLE and len(view) % LARGE == 0:
        shift = np.frombuffer(view, np.uint8).ctypes.data - np.frombuffer(memory, np.uint8).ctypes.data
        np.frombuffer(view, np.uint8)[::LARGE] = 0  # what nobody has touched yet is refused
        with contextlib.suppress(OSError):  # an older system, or no memory in large pieces
            memory.madvise(_COLLAPSE, shift, len(view))


def keep_what_is_freed() -> None:
    """Let the system's allocator keep the memory of large messages, which ZeroMQ takes and gives back one by one.

    glibc would return most of it each time, and every page would be asked for and cleared anew. It keeps twice the
    largest block that it has seen come back, whoever had it: it is shown one, which nobody writes into. Who has set
    limits of their own (MALLOC_TRIM_THRESHOLD_ and the like) has these; other allocators are not impressed.
    """
    np.empty(_MOST, np.uint8)
