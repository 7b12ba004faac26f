"""The limit for weights: 6.76 MB in shared memory under a sequence number, two readers that copy it out and say so.

`weights.py ROUNDS`. Readers look at a counter every 50 us.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
from multiprocessing import shared_memory
from multiprocessing.connection import Connection

import numpy as np
from payloads import report

NUMBERS = 1_690_000
READERS = 2


def _read(name: str, done: Connection) -> None:
    memory = shared_memory.SharedMemory(name=name)
    counter, source = np.ndarray((8,), "u8", memory.buf), np.ndarray((NUMBERS,), "f4", memory.buf, 4096)
    mine, last = np.empty(NUMBERS, "f4"), 0
    done.send(0)
    while True:
        version = int(counter[0])
        if version == last or version % 2:
            time.sleep(5e-5)
            continue
        mine[:] = source
        if int(counter[0]) == version:
            last = version
            done.send(version)


def main(rounds: int) -> None:
    context = multiprocessing.get_context("spawn")
    memory = shared_memory.SharedMemory(create=True, size=4096 + NUMBERS * 4)
    try:
        counter, target = np.ndarray((8,), "u8", memory.buf), np.ndarray((NUMBERS,), "f4", memory.buf, 4096)
        counter[:] = 0
        weights = np.random.default_rng(0).random(NUMBERS).astype("f4")
        ends, children = [], []
        for _ in range(READERS):
            here, there = context.Pipe()
            child = context.Process(target=_read, args=(memory.name, there), daemon=True)
            child.start()
            children.append(child)
            here.recv()
            ends.append(here)
        times, version = [], 0
        for _ in range(rounds):
            begun = time.perf_counter()
            counter[0] = version + 1
            target[:] = weights
            version += 2
            counter[0] = version
            for end in ends:
                end.recv()
            times.append(time.perf_counter() - begun)
        for child in children:
            child.kill()
        report("bare shared memory", readers=READERS, ms=statistics.median(times) * 1000)
    finally:
        memory.unlink()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
