"""Counts as fast as it can and exports it: the program of the tests of metrics.

Words change what it does: `handles` a SIGTERM itself, `forks` a child that exports too, `idle` counts slowly, `puts`
into a remote store.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from callsheet.metrics import Exporter, Registry

INTERVAL = float(os.environ.get("INTERVAL", "0.05"))
words = set(sys.argv[1:])

if "handles" in words:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

registry = Registry()
steps = registry.counter("steps", "Steps of the loop.", shown=True)
spread = registry.histogram("spread", "Values seen.", shown=True)
level = registry.gauge("level", "Goes up and down.", shown=True)

sink = None
if "puts" in words:
    from callsheet.store import open_store

    sink = open_store(os.environ["CALLSHEET_STORAGE"])

with Exporter(registry, interval=INTERVAL, sink=sink) as exporter:
    if "forks" in words and not os.fork():
        with Exporter(registry, interval=INTERVAL):
            steps.add(1_000_000)
            time.sleep(0.5)  # stays for as long as its parent is looked at
        os._exit(0)
    steps.add()
    spread.observe(1)
    print("counting", exporter.server.address if exporter.server else "-", flush=True)
    limit = time.monotonic() + float(os.environ.get("SECONDS", "60"))
    while time.monotonic() < limit:
        for number in range(1000):
            steps.add()
            spread.observe(number & 15)
            level.set(number)
        if "idle" in words:
            time.sleep(0.01)
print("done", steps.value, flush=True)
