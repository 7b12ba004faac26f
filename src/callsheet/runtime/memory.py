"""How much memory there is: what a peer announces must fit into it before anything is allocated."""

from __future__ import annotations

import os
from pathlib import Path


def memory_limit() -> int:
    """Bytes that this process can have at most: of the machine, or of its container."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return machine
