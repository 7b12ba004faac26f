"""What metrics cost (updates, imports, scrapes, lines), compared with prometheus-client.

    python benchmarks/metrics.py [--rounds 7]

An update's time is the best of its rounds; a scrape's is the median of all scrapes. Imports are measured in fresh
processes with compiled files. Updates and imports are CPU time, scrapes are wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
import urllib.request
from collections.abc import Callable
from typing import Any

import prometheus_client

from callsheet.metrics import Exporter, ExportTargets, Registry, instruments, prometheus, wellknown
from callsheet.metrics.json_lines import LineMaker
from callsheet.metrics.targets import Identity
from callsheet.metrics.tensorboard import crc32c

COUNT = 200_000


def nanoseconds(update: Callable[..., Any], *arguments: Any, rounds: int) -> float:
    """Best time of one call, without the loop's own time."""
    names = {
        "update": update,
        "a": arguments[0] if arguments else None,
        "b": arguments[-1] if arguments else None,
    }
    call = ("update()", "update(a)", "update(a, b)")[len(arguments)]
    # CPU time is less affected by other processes.
    times = timeit.repeat(call, timer=time.thread_time, globals=names, number=COUNT, repeat=rounds)
    empty = timeit.repeat("pass", timer=time.thread_time, globals=names, number=COUNT, repeat=rounds)
    return (min(times) - min(empty)) / COUNT * 1e9


def updates(rounds: int) -> None:
    """Ours with and without locks, and prometheus-client's."""
    print(f"{'one update, ns':<34}{'ours':>10}{'without a GIL':>16}{'prometheus-client':>20}")
    theirs = prometheus_client.CollectorRegistry()
    their_counter = prometheus_client.Counter("c", "c", registry=theirs)
    their_gauge = prometheus_client.Gauge("g", "g", registry=theirs)
    their_histogram = prometheus_client.Histogram("h", "h", registry=theirs)
    ours: list[list[float]] = []
    for locked in (False, True):
        instruments.LOCKED = locked  # type: ignore[misc]
        registry = Registry()
        counter, gauge = registry.counter("c", "c"), registry.gauge("g", "g")
        histogram = registry.histogram("h", "h", unit="seconds")
        ours.append(
            [
                nanoseconds(counter.add, 3, rounds=rounds),
                nanoseconds(gauge.set, 3.5, rounds=rounds),
                nanoseconds(histogram.observe, 0.003, rounds=rounds),
                nanoseconds(histogram.observe, 0.003, 64, rounds=rounds),
            ]
        )
    instruments.LOCKED = False  # type: ignore[misc]
    other = [
        nanoseconds(their_counter.inc, 3, rounds=rounds),
        nanoseconds(their_gauge.set, 3.5, rounds=rounds),
        nanoseconds(their_histogram.observe, 0.003, rounds=rounds),
        float("nan"),
    ]
    names = ("counter.add(3)", "gauge.set(3.5)", "histogram.observe(0.003)", "histogram.observe(0.003, 64)")
    for name, plain, locked_time, their in zip(names, *ours, other, strict=True):
        print(f"  {name:<32}{plain:>10.0f}{locked_time:>16.0f}{their:>20.0f}")


def imports(rounds: int) -> None:
    """Milliseconds of processor time until a fresh interpreter has the names."""
    print("import, ms, best of rounds")
    with tempfile.TemporaryDirectory() as compiled:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
            "PYTHONPYCACHEPREFIX": compiled
        }
        usual = "import dataclasses, json, threading, callsheet.errors"
        for what, first in (
            ("from callsheet.metrics import Registry, Exporter", "pass"),
            ("from callsheet.metrics import Registry, Exporter", usual),
            ("import callsheet.metrics.tensorboard", usual),
            ("import prometheus_client", usual),
            ("import http.server", usual),
        ):
            code = f"import time; {first}; t = time.process_time(); {what}; print(time.process_time() - t)"
            took = [
                float(
                    subprocess.run(
                        [sys.executable, "-c", code], env=env, capture_output=True, check=True
                    ).stdout
                )
                for _ in range(rounds + 1)
            ]
            after = "" if first == "pass" else ", after what most programs load"
            print(f"  {what + after:<82}{min(took) * 1e3:>8.1f}")


def filled() -> Registry:
    """All well-known metrics of a busy process."""
    registry = Registry()
    for by_endpoint in wellknown.BY_ENDPOINT:
        by_endpoint(registry, "trajectories")
    for of_process in wellknown.PER_PROCESS:
        of_process(registry)
    return registry


def scrape(url: str, count: int) -> float:
    """Median milliseconds of one scrape."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        with urllib.request.urlopen(url, timeout=10) as answer:
            answer.read()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3


def exports(rounds: int) -> None:
    """A page, a line, a scrape."""
    registry = filled()
    readings = registry.snapshot()
    maker = LineMaker(Identity(), 5.0)
    line = json.dumps(maker.make(readings, now=time.time(), clock=0.0))
    print(f"export of {len(readings)} instruments, all well-known ones")
    for name, work in (
        ("snapshot", registry.snapshot),
        ("page of text", lambda: prometheus.text(readings, Identity())),
        ("line of JSON", lambda: json.dumps(maker.make(readings, now=time.time(), clock=time.monotonic()))),
    ):
        print(f"  {name:<34}{min(timeit.repeat(work, number=20, repeat=rounds)) / 20 * 1e3:>8.2f} ms")
    print(f"  {'size of a line':<34}{len(line):>8} bytes")
    print(
        f"  {'checksum of 1 kB':<34}{min(timeit.repeat(lambda: crc32c(bytes(1000)), number=20, repeat=rounds)) / 20 * 1e6:>8.0f} us"
    )
    theirs = prometheus_client.CollectorRegistry()
    made: dict[str, Any] = {}
    for reading in readings:
        labels = reading.definition.labels
        kind = {"counter": prometheus_client.Counter, "gauge": prometheus_client.Gauge}.get(
            reading.definition.kind, prometheus_client.Histogram
        )
        if reading.definition.name in made:
            member = made[reading.definition.name]
        else:
            member = made[reading.definition.name] = kind(
                reading.definition.name, "help", labels, registry=theirs
            )
        if labels:
            member.labels(*reading.labels)
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry=theirs)
    with Exporter(registry, ExportTargets(address="127.0.0.1:0")) as exporter:
        assert exporter.server
        ours = scrape(f"http://{exporter.server.address}/metrics", 300)
        their = scrape(f"http://127.0.0.1:{server.server_address[1]}/metrics", 300)
    server.shutdown()
    thread.join()
    print(f"  {'scrape, our port':<34}{ours:>8.2f} ms")
    print(f"  {'scrape, prometheus-client':<34}{their:>8.2f} ms")


def main() -> None:
    """Measure all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    updates(rounds)
    imports(rounds)
    exports(rounds)


if __name__ == "__main__":
    main()
