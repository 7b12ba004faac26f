"""The limit: a bare single-writer ring in shared memory, which looks at counters and sleeps 20 us in between.

`ring.py PAYLOAD WRITERS SECONDS`. It trusts memory order, checks nothing, and burns a core while it waits.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from multiprocessing import shared_memory

import numpy as np
from payloads import PAYLOADS, Batch, measure, rollout, size

SLOTS = 8


def _views(memory: memoryview, at: int, payload: str) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
    counters = np.ndarray((16,), "u8", memory, at)
    step = -(-size(payload) // 4096) * 4096
    slots = []
    for number in range(SLOTS):
        place, arrays = at + 4096 + number * step, {}
        for name, (shape, kind) in PAYLOADS[payload].items():
            arrays[name] = np.ndarray(shape, kind, memory, place)
            place += arrays[name].nbytes
        slots.append(arrays)
    return counters, slots


def _write(name: str, at: int, payload: str) -> None:
    memory = shared_memory.SharedMemory(name=name)
    counters, slots = _views(memory.buf, at, payload)
    item, written = rollout(payload), 0
    while True:
        while written - int(counters[8]) >= SLOTS:
            time.sleep(2e-5)
        for key, value in item.items():
            slots[written % SLOTS][key][...] = value
        written += 1
        counters[0] = written


def main(payload: str, writers: int, seconds: float) -> None:
    context = multiprocessing.get_context("spawn")
    length = 4096 + SLOTS * (-(-size(payload) // 4096) * 4096)
    memory = shared_memory.SharedMemory(create=True, size=length * writers)
    try:
        rings = [_views(memory.buf, length * number, payload) for number in range(writers)]
        for counters, _ in rings:
            counters[:] = 0
        children = [
            context.Process(target=_write, args=(memory.name, length * number, payload), daemon=True)
            for number in range(writers)
        ]
        for child in children:
            child.start()
        taken, batch = [0] * writers, Batch(payload)

        def take() -> int:
            while True:
                for number, (counters, slots) in enumerate(rings):
                    if int(counters[0]) > taken[number]:
                        batch.put(slots[taken[number] % SLOTS])
                        taken[number] += 1
                        counters[8] = taken[number]
                        return 1
                time.sleep(2e-5)

        measure("bare shared-memory ring", payload, writers, seconds, take)
        for child in children:
            child.kill()
    finally:
        memory.unlink()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
