"""What an exporter hands each moment to: the writer of JSON lines, the writer of TensorBoard events, and the uploader."""

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
from callsheet.metrics.targets import Outlets

EVENTS_EVERY: Final = 30.0
"""Seconds between two TensorBoard events: people look at hours there."""
UPLOAD_EVERY: Final = 60.0
"""Seconds between two uploads to a remote store."""


class Moment(NamedTuple):
    """All metrics at one moment."""

    readings: list[Reading]
    line: dict[str, Any]
    clock: float
    """Seconds since the exporter began."""
    last: bool


class Output(Protocol):
    """Something to append to."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class Writer(Protocol):
    """Takes every moment."""

    name: str

    def take(self, moment: Moment) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None:
        """In a forked child: let go of the parent's file without waiting for anything."""


class LineWriter:
    """Writes every moment as a line of JSON."""

    name = "lines"

    def __init__(self, output: Output) -> None:
        self._output = output

    def take(self, moment: Moment) -> None:
        """Append the line."""
        self._output.write(json.dumps(moment.line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Let go of the file."""
        self._output.close()

    abandon = close


class EventsWriter:
    """Writes every so often a moment as an event of TensorBoard: gauges, counters' rates, what histograms saw since."""

    name = "tensorboard"

    def __init__(self, output: Output, step: Counter | None) -> None:
        from callsheet.metrics.tensorboard import EventWriter

        self._output = output
        self._events = EventWriter(output)
        self._step = step
        self._written = float("-inf")
        self._before: dict[str, Distribution] = {}

    def take(self, moment: Moment) -> None:
        """Write an event if one is due."""
        if moment.clock - self._written < EVENTS_EVERY and not moment.last:
            return
        values: dict[str, Number | Distribution] = {}
        after: dict[str, Distribution] = {}
        for reading in moment.readings:
            name = lines.key(reading)
            tag = name.replace("_", "/", 1)  # TensorBoard folds what has a beginning in common
            if isinstance(reading.value, Distribution):
                after[name] = reading.value
                seen = reading.value.since(self._before[name]) if name in self._before else reading.value
                if seen.count:
                    values[tag] = seen
            elif reading.definition.kind == "gauge":
                values[tag] = reading.value
            elif (rate := moment.line["rates"].get(name)) is not None:
                values[f"{tag}_per_second"] = rate
        step = int(moment.clock if self._step is None else self._step.value)
        self._events.write(step, values)
        self._written, self._before = moment.clock, after

    def close(self) -> None:
        """Let go of the file."""
        self._events.close()

    def abandon(self) -> None:
        """Let go of the file; a lock that was held when the process was forked stays held."""
        self._output.close()


class Uploader:
    """Puts parts into a remote store from a thread of its own: a store that does not answer holds up nothing else."""

    def __init__(self, parts: list[Parts], lost: Callable[[str, Exception], None]) -> None:
        self._parts = parts
        self._lost = lost
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="callsheet-metrics-upload", daemon=True)
        self._thread.start()

    def finish(self, patience: float) -> None:
        """Put the rest and end; give up after `patience` seconds, and say so."""
        self._asked.put(None)
        self._thread.join(patience)
        if self._thread.is_alive():
            error = TimeoutError(f"the store has not taken the last ones within {patience:g} s")
            # By another thread: who was interrupted by a signal may hold what is needed to say it.
            teller = threading.Thread(target=self._lost, args=("upload", error), daemon=True)
            teller.start()
            teller.join(1.0)

    def _run(self) -> None:
        asked = False
        while not asked:
            try:
                self._asked.get(timeout=UPLOAD_EVERY)
                asked = True
            except Empty:
                pass
            for parts in self._parts:
                try:
                    parts.upload()
                except Exception as error:  # noqa: BLE001 - a store of any kind; the next try may succeed
                    self._lost("upload", error)


def local(outlets: Outlets, *, tensorboard: bool, step: Counter | None) -> list[Writer]:
    """Writers of files in the run's folder."""
    who = outlets.identity
    made: list[Writer] = [
        LineWriter(RotatingFile(f"{outlets.folder}/metrics/{who.role}/{who.index}", who.container))
    ]
    if tensorboard:
        from callsheet.metrics.tensorboard import EventFile

        made.append(EventsWriter(EventFile(f"{outlets.folder}/tensorboard/{who.name}"), step))
    return made


def remote(
    outlets: Outlets, sink: Sink, *, tensorboard: bool, step: Counter | None
) -> tuple[list[Writer], list[Parts]]:
    """Writers of parts, and the parts to upload. Each process names its own: nothing of an earlier one is replaced."""
    who = outlets.identity
    stamp = f"{int(time.time()):010d}-{os.urandom(3).hex()}"
    folder = f"metrics/{who.role}/{who.index}"
    parts = [Parts(sink, lambda number: f"{folder}/{who.container}.{stamp}-{number:04d}.jsonl")]
    made: list[Writer] = [LineWriter(parts[0])]
    if tensorboard:
        from callsheet.metrics.tensorboard import HEAD, file_name

        begun = file_name()
        parts.append(
            Parts(sink, lambda number: f"tensorboard/{who.name}/{begun}.{stamp}-{number:04d}", head=HEAD)
        )
        made.append(EventsWriter(parts[1], step))
    return made, parts
