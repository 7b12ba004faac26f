"""Resource usage of the process, read on demand."""

from __future__ import annotations

import os
import sys
import threading
import time

from callsheet.metrics.instruments import Counter
from callsheet.metrics.registry import Family, Registry


def add_process_metrics(registry: Registry) -> None:
    """Let a registry tell about its own process."""
    registry.counter("process_cpu", "CPU time used by all threads of the process.", unit="seconds").follow(
        time.process_time
    )
    registry.gauge("process_resident", "Resident memory of the process.", unit="bytes", adds_up=True).follow(
        _resident
    )
    registry.gauge("process_threads", "Python threads.").follow(threading.active_count)
    registry.counter("metrics_failures", "Metrics skipped because their function failed.").follow(
        lambda: registry.failures.value
    )
    if os.path.isdir("/proc/self/fd"):
        registry.gauge("process_open_files", "Open file descriptors.").follow(_open_files)
    lost(registry)


def lost(registry: Registry) -> Family[Counter]:
    """Counts failed exports."""
    return registry.counters(
        "metrics_lost",
        "Failed attempts to export metrics, by exporter: lines, tensorboard, port, upload.",
        ("by",),
    )


def dropped(registry: Registry) -> Counter:
    """What an exporter counts when a remote store does not take parts for too long."""
    return registry.counter(
        "metrics_dropped", "Bytes of metrics dropped before they were sent.", unit="bytes"
    )


def _resident() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        import resource

        peak = resource.getrusage(
            resource.RUSAGE_SELF
        ).ru_maxrss  # the peak: systems without /proc do not report the current value
        return peak if sys.platform == "darwin" else peak * 1024


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd")) - 1  # the listing itself opens one
