"""The numbers that a program passes: one that cannot be is refused where it is passed, in words that say what can be."""

from __future__ import annotations

import math
import operator
import os
from pathlib import Path
from typing import Any

from callsheet.errors import UserError
from callsheet.runtime.link.protocol import MAX_BLOCKS

MAX_WINDOW = MAX_BLOCKS // 2
"""Frames on their way in one direction: the other half of the blocks is lent to many peers at once."""

MAX_VERSION = (1 << 63) - 1


def integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number within these bounds, NumPy's included."""
    try:
        found = operator.index(value)
    except TypeError:
        found = least - 1
    if found < least or (most is not None and found > most):
        bounds = f"of at least {least:,}" if most in (None, MAX_VERSION) else f"from {least:,} to {most:,}"
        raise UserError(f"{name} is {value!r}", fix=f"write a whole number {bounds}")
    return found


def window(value: Any) -> int:
    """How many frames may be on their way."""
    return integer("window", value, 1, MAX_WINDOW)


def seconds(name: str, value: Any, *, endless: str = "None to wait without a limit") -> None:
    """A time to wait. Infinity is one too."""
    try:
        fits = bool(value >= 0)  # not so for what is no number
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise UserError(f"{name} is {value!r}", fix=f"write seconds: 0 or more, or {endless}")


def positive(name: str, value: Any, fix: str) -> None:
    """A finite number that is more than nothing."""
    try:
        fits = bool(value > 0) and math.isfinite(value)
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise UserError(f"{name} is {value!r}", fix=fix)


def memory_limit() -> int:
    """Bytes that this process can have at most: of the machine, or of its container."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(machine, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return machine
