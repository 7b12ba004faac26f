"""Huge pages for shared memory, and an allocator that keeps freed memory.

Copies take up to 50 % longer with 4 KiB pages. Linux gives transparent huge pages to private memory, but to shared
memory only on request, block by block (Linux 6.1), and only if both ends map it aligned and in multiples of a huge
page. Where that is not possible, normal pages are used.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from pathlib import Path

import numpy as np

HUGE_PAGE = 2 * 1024 * 1024
_MADV_COLLAPSE = 25
"""The `mmap` module does not define it."""
_MAP_FIXED = 0x10
_mmap = ctypes.CDLL(None).mmap
_mmap.restype = ctypes.c_size_t
_mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_leaked: list[mmap.mmap] = []
_MALLOC_BLOCK = 32 * 1024 * 1024 - 64 * 1024
"""The largest allocation that still raises glibc's dynamic mmap threshold, minus its own overhead."""


def _supported() -> bool:
    try:
        return int(Path("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size").read_text()) == HUGE_PAGE
    except (OSError, ValueError):
        return False


ENABLED = _supported()


def round_up(size: int, step: int) -> int:
    """Round up to a multiple of `step`, or of a huge page if that at most doubles the size."""
    step = HUGE_PAGE if ENABLED and size >= HUGE_PAGE // 2 else step
    return -(-size // step) * step


def map_aligned(fd: int, size: int, prot: int) -> tuple[mmap.mmap, memoryview]:
    """Map a file, aligned to huge pages if possible; the view may start inside the map."""
    if ENABLED and size % HUGE_PAGE == 0:
        memory = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=prot)
        start = np.frombuffer(memory, np.uint8).ctypes.data
        shift = -start % HUGE_PAGE
        flags = mmap.MAP_SHARED | _MAP_FIXED
        if _mmap(start + shift, size, prot, flags, fd, 0) == start + shift:
            return memory, memoryview(memory)[shift : shift + size]
        _leaked.append(memory)  # its address range may belong to someone else now, so it must not be unmapped
    memory = mmap.mmap(fd, size, prot=prot)
    return memory, memoryview(memory)


def request_huge_pages(memory: mmap.mmap, view: memoryview) -> None:
    """Ask the kernel for huge pages behind a fresh map; both sides benefit."""
    if ENABLED and len(view) % HUGE_PAGE == 0:
        shift = np.frombuffer(view, np.uint8).ctypes.data - np.frombuffer(memory, np.uint8).ctypes.data
        np.frombuffer(view, np.uint8)[::HUGE_PAGE] = 0  # MADV_COLLAPSE fails on untouched pages
        with contextlib.suppress(OSError):  # an older kernel, or fragmented memory
            memory.madvise(_MADV_COLLAPSE, shift, len(view))


def keep_freed_memory() -> None:
    """Make malloc keep the memory of large messages instead of returning it to the system each time.

    ZeroMQ allocates and frees one buffer per message; without this, every page would be faulted in and zeroed again.
    glibc keeps up to twice the largest block it has seen freed, so we allocate and free one that nobody touches.
    Limits set by the user (MALLOC_TRIM_THRESHOLD_ and the like) still win; other allocators ignore this.
    """
    np.empty(_MALLOC_BLOCK, np.uint8)
