"""How many processors this process may use."""

from __future__ import annotations

import os


def processors() -> int:
    """What the role was given (`OMP_NUM_THREADS`, which follows its request), else what the system allows."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdecimal() and int(told):
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
