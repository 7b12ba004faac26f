"""The rollouts that every transport carries here, and what a learner does with them: a copy into a batch.

Nothing of Callsheet is imported, so that the peers' own environments can run it.
"""

from __future__ import annotations

import json
import math
import resource
import time
from collections.abc import Callable

import numpy as np

PAYLOADS: dict[str, dict[str, tuple[tuple[int, ...], str]]] = {
    "1KB": {  # CartPole, T = 32
        "obs": ((32, 4), "f4"),
        "act": ((32,), "i8"),
        "rew": ((32,), "f4"),
        "done": ((32,), "?"),
        "logp": ((32,), "f4"),
    },
    "565KB": {  # Atari, T = 20
        "obs": ((20, 4, 84, 84), "u1"),
        "act": ((20,), "i8"),
        "rew": ((20,), "f4"),
        "done": ((20,), "?"),
        "logits": ((20, 6), "f4"),
    },
    "1.05MB": {
        "obs": ((128, 2048), "f4"),
        "act": ((128,), "i8"),
        "rew": ((128,), "f4"),
        "done": ((128,), "?"),
        "logp": ((128,), "f4"),
    },
}
BATCH = 16


def rollout(payload: str) -> dict[str, np.ndarray]:
    """One rollout."""
    chance = np.random.default_rng(0)
    return {
        name: (chance.random(shape) * 255).astype(kind) for name, (shape, kind) in PAYLOADS[payload].items()
    }


def size(payload: str) -> int:
    """Its bytes."""
    return sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in PAYLOADS[payload].values())


class Batch:
    """Preallocated arrays that a learner fills, round and round."""

    def __init__(self, payload: str) -> None:
        self.arrays = {
            name: np.empty((BATCH, *shape), kind) for name, (shape, kind) in PAYLOADS[payload].items()
        }
        self.at = 0

    def put(self, item: dict[str, np.ndarray]) -> None:
        """Copy one rollout in."""
        for name, value in item.items():
            self.arrays[name][self.at] = value
        self.at = (self.at + 1) % BATCH


def measure(name: str, payload: str, writers: int, seconds: float, take: Callable[[], int]) -> None:
    """Call `take` (which says how many items it took) for so long and print a line of JSON."""
    warm = 0
    while warm < 50:
        warm += take()
    count = 0
    cpu, begun = time.process_time(), time.perf_counter()
    while time.perf_counter() - begun < seconds:
        count += take()
    took = time.perf_counter() - begun
    gigabytes = count * size(payload) / 1e9
    report(
        name,
        payload=payload,
        writers=writers,
        items_per_s=count / took,
        mb_per_s=gigabytes * 1000 / took,
        reader_cpu_s_per_gb=(time.process_time() - cpu) / gigabytes if gigabytes else 0.0,
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def report(name: str, **numbers: float | str) -> None:
    """One line that the benchmark reads."""
    print(json.dumps({"name": name, **numbers}), flush=True)
