"""Checks of numbers that programs pass, and how much memory there is. A bad number is refused with the valid range."""

from __future__ import annotations

import math
import operator
import os
from pathlib import Path
from typing import Any

from callsheet.errors import UserError
from callsheet.runtime.link.protocol import MAX_BLOCKS

MAX_WINDOW = MAX_BLOCKS // 2
"""Frames in flight per direction; the other half of the blocks is for those shared by many peers."""

MAX_VERSION = (1 << 63) - 1


def integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Check an integer, NumPy's included."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or (most is not None and number > most):
        bounds = f"of at least {least:,}" if most in (None, MAX_VERSION) else f"from {least:,} to {most:,}"
        raise UserError(f"{name} is {value!r}", fix=f"pass an integer {bounds}")
    return number


def window(value: Any) -> int:
    """Check a number of frames in flight."""
    return integer("window", value, 1, MAX_WINDOW)


def seconds(name: str, value: Any, *, endless: str = "None to wait without a limit") -> None:
    """Check a number of seconds; infinity is valid."""
    try:
        valid = bool(value >= 0)  # False for NaN
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise UserError(f"{name} is {value!r}", fix=f"pass seconds: 0 or more, or {endless}")


def positive(name: str, value: Any, fix: str) -> None:
    """Check a finite number above 0."""
    try:
        valid = bool(value > 0) and math.isfinite(value)
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise UserError(f"{name} is {value!r}", fix=fix)


def memory_limit() -> int:
    """Bytes of memory this process may use: of the machine or of its container."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return machine
