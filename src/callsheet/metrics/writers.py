"""The exporter's outputs: JSON lines, TensorBoard events, and uploads to a remote store."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Protocol

from callsheet.metrics import json_lines as lines
from callsheet.metrics.files import Parts, RotatingFile, Sink
from callsheet.metrics.instruments import Counter, Distribution, Number
from callsheet.metrics.registry import Reading
from callsheet.metrics.targets import ExportTargets

EVENTS_EVERY: Final = 30.0
"""Seconds between two TensorBoard events, which people view over hours."""
UPLOAD_EVERY: Final = 60.0
"""Seconds between two uploads to a remote store."""


class Snapshot(NamedTuple):
    """All metrics at one snapshot."""

    readings: list[Reading]
    line: dict[str, Any]
    clock: float
    """Seconds since the exporter started."""
    last: bool


class Output(Protocol):
    """Something to append to."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class Writer(Protocol):
    """Receives every snapshot."""

    name: str

    def take(self, snapshot: Snapshot) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None:
        """In a forked child: close the parent's file without waiting."""


class LineWriter:
    """Writes every snapshot as a line of JSON."""

    name = "lines"

    def __init__(self, output: Output) -> None:
        self._output = output

    def take(self, snapshot: Snapshot) -> None:
        """Append the line."""
        self._output.write(json.dumps(snapshot.line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        self._output.close()

    abandon = close


class TensorBoardWriter:
    """Writes a TensorBoard event at intervals: gauges, rates of counters, and histograms since the last event."""

    name = "tensorboard"

    def __init__(self, output: Output, step: Counter | None) -> None:
        from callsheet.metrics.tensorboard import EventWriter

        self._output = output
        self._events = EventWriter(output)
        self._step = step
        self._written = float("-inf")
        self._before: dict[str, Distribution] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Write an event if one is due."""
        if snapshot.clock - self._written < EVENTS_EVERY and not snapshot.last:
            return
        values: dict[str, Number | Distribution] = {}
        after: dict[str, Distribution] = {}
        for reading in snapshot.readings:
            name = lines.key(reading)
            tag = name.replace("_", "/", 1)  # TensorBoard groups tags by prefix
            if isinstance(reading.value, Distribution):
                after[name] = reading.value
                seen = reading.value.since(self._before[name]) if name in self._before else reading.value
                if seen.count:
                    values[tag] = seen
            elif reading.definition.kind == "gauge":
                values[tag] = reading.value
            elif (rate := snapshot.line["rates"].get(name)) is not None:
                values[f"{tag}_per_second"] = rate
        step = int(snapshot.clock if self._step is None else self._step.value)
        self._events.write(step, values)
        self._written, self._before = snapshot.clock, after

    def close(self) -> None:
        """Close the file."""
        self._events.close()

    def abandon(self) -> None:
        """Close the file without the lock, which may have been held when the process was forked."""
        self._output.close()


class Uploader:
    """Uploads parts to a remote store in its own thread, so that a slow store delays nothing else."""

    def __init__(self, parts: list[Parts], lost: Callable[[str, Exception], None]) -> None:
        self._parts = parts
        self._lost = lost
        self._stop_requests: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="callsheet-metrics-upload", daemon=True)
        self._thread.start()

    def finish(self, timeout: float) -> None:
        """Upload the rest and stop; give up after `timeout` seconds, and count that."""
        self._stop_requests.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            error = TimeoutError(f"the last upload took longer than {timeout:g} s")
            # In another thread: the one that a signal interrupted may hold a lock that logging needs.
            reporter = threading.Thread(target=self._lost, args=("upload", error), daemon=True)
            reporter.start()
            reporter.join(1.0)

    def _run(self) -> None:
        stopping = False
        while not stopping:
            try:
                self._stop_requests.get(timeout=UPLOAD_EVERY)
                stopping = True
            except Empty:
                pass
            for parts in self._parts:
                try:
                    parts.upload()
                except Exception as error:  # noqa: BLE001 - any kind of store; the next attempt may succeed
                    self._lost("upload", error)


def local_writers(targets: ExportTargets, *, tensorboard: bool, step: Counter | None) -> list[Writer]:
    """Writers for files in the run's folder."""
    who = targets.identity
    made: list[Writer] = [
        LineWriter(RotatingFile(f"{targets.folder}/metrics/{who.role}/{who.index}", who.container))
    ]
    if tensorboard:
        from callsheet.metrics.tensorboard import EventFile

        made.append(TensorBoardWriter(EventFile(f"{targets.folder}/tensorboard/{who.name}"), step))
    return made


def remote_writers(
    targets: ExportTargets, sink: Sink, *, tensorboard: bool, step: Counter | None
) -> tuple[list[Writer], list[Parts]]:
    """Writers for parts, and the parts to upload. Their names are unique to this process."""
    who = targets.identity
    stamp = f"{int(time.time()):010d}-{os.urandom(3).hex()}"
    folder = f"metrics/{who.role}/{who.index}"
    parts = [Parts(sink, lambda number: f"{folder}/{who.container}.{stamp}-{number:04d}.jsonl")]
    made: list[Writer] = [LineWriter(parts[0])]
    if tensorboard:
        from callsheet.metrics.tensorboard import HEAD, file_name

        first = file_name()
        parts.append(
            Parts(sink, lambda number: f"tensorboard/{who.name}/{first}.{stamp}-{number:04d}", head=HEAD)
        )
        made.append(TensorBoardWriter(parts[1], step))
    return made, parts
