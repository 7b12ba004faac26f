"""Simulators that ask a policy server, for every peer alike: processes with threads, each one request at a time."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable

import numpy as np

PROCESSES = 4
OBSERVATION = np.zeros((1, 4), "f4")


def ask(make: Callable[[int], Callable[[], None]], first: int, count: int, seconds: float) -> str:
    """Run `count` clients as threads; the latencies of all their requests, in microseconds, as JSON."""
    found: list[list[float]] = [[] for _ in range(count)]
    ready = threading.Barrier(count)

    def run(number: int) -> None:
        request = make(first + number)
        for _ in range(20):
            request()
        ready.wait()
        end = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < end:
            request()
            found[number].append((time.perf_counter() - begun) * 1e6)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return json.dumps([time for times in found for time in times])


def summary(answers: list[str], seconds: float) -> dict[str, float]:
    """Requests per second and the latencies' percentiles."""
    times = sorted(time for answer in answers for time in json.loads(answer))
    return {
        "requests_per_s": len(times) / seconds,
        "p50_us": statistics.median(times),
        "p99_us": times[int(len(times) * 0.99)],
    }
