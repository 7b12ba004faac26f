"""How a service is seen by those who use it: a count and the longest pause, in memory that outlives every process.

Whoever got something done ticks. A new process goes on with its predecessor's beat, so a pause includes the time
without any process.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path

_SHAPE = struct.Struct("=ddd")
_COUNT, _LAST, _PAUSE = range(3)


class Beat:
    """One count. Many may look, one ticks."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"beat-{name.replace('/', '-')}"
        with path.open("ab") as file:
            if file.tell() < _SHAPE.size:
                file.write(bytes(_SHAPE.size - file.tell()))
        with path.open("r+b") as file:
            self._memory = memoryview(mmap.mmap(file.fileno(), _SHAPE.size)).cast("d")

    def tick(self, count: int = 1) -> None:
        """Something was done."""
        now, memory = time.monotonic(), self._memory
        pause = now - memory[_LAST]
        if memory[_LAST] and pause > memory[_PAUSE]:
            memory[_PAUSE] = pause
        memory[_LAST] = now
        memory[_COUNT] += count

    @property
    def count(self) -> int:
        """What was done so far."""
        return int(self._memory[_COUNT])

    @property
    def pause(self) -> float:
        """The longest pause since `forget`, and the one that goes on now."""
        return max(self._memory[_PAUSE], time.monotonic() - self._memory[_LAST])

    def forget(self) -> None:
        """Measure pauses from now on."""
        self._memory[_PAUSE] = 0.0
