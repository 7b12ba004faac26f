"""Exports a process's metrics while it runs: to a Prometheus port, JSON lines and TensorBoard files.

One thread reads the registry at every interval and never makes the program wait. A failed write is counted and logged
once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

from callsheet.metrics.instruments import Counter
from callsheet.metrics.json_lines import LineMaker
from callsheet.metrics.process import add_process_metrics, dropped, lost
from callsheet.metrics.registry import Registry
from callsheet.metrics.targets import ExportTargets, split_address
from callsheet.metrics.writers import Snapshot, Uploader, Writer, local_writers, remote_writers

if TYPE_CHECKING:
    from callsheet.metrics.files import Sink
    from callsheet.metrics.server import Server

INTERVAL: Final = 5.0
"""Seconds between two lines."""
FIRST_INTERVAL: Final = 1.0
"""Seconds until the first line, because someone may be watching the start."""
FLUSH_TIMEOUT: Final = 5.0
"""Seconds that a program waits at its end for the last line, and again for the last upload."""


class Exporter:
    """Exports from `start` to `close`; a context manager. Outside an experiment it does nothing.

    The last line is written by `close`, at the end of the interpreter, and on SIGTERM unless the program handles it.
    """

    def __init__(
        self,
        registry: Registry,
        targets: ExportTargets | None = None,
        *,
        sink: Sink | None = None,
        interval: float = INTERVAL,
        tensorboard: bool = True,
        step: Counter | None = None,
    ) -> None:
        """`sink` stores objects if the run's results are not in a local folder. `step` is TensorBoard's x axis (default: seconds
        since the start)."""
        self.registry = registry
        self.targets = ExportTargets.from_env() if targets is None else targets
        if self.targets.address:
            split_address(self.targets.address)
        self._sink = sink
        self._interval = interval
        self._tensorboard = tensorboard
        self._step = step
        self._maker = LineMaker(self.targets.identity, interval)
        self._started_at = time.monotonic()
        self._lost = lost(registry)
        self._logged: set[str] = set()
        self._stop_requests: SimpleQueue[None] = SimpleQueue()
        self._thread_running = threading.Lock()
        self._running = False
        self._writers: list[Writer] = []
        self._uploader: Uploader | None = None
        self.server: Server | None = None
        """The Prometheus port, if there is one."""

    def __enter__(self) -> Exporter:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start. What cannot start is counted and logged; the rest works without it."""
        if self._running:
            return
        self._running = True
        add_process_metrics(self.registry)
        self._line = self._snapshot(last=False).line
        self._start_files()
        self._start_port()
        if not self._writers and self.server is None:
            return  # there is nowhere to export to
        self._thread_running.acquire()
        threading.Thread(target=self._run, name="callsheet-metrics", daemon=True).start()
        _running_exporters.add(self)
        _catch_sigterm()

    def close(self) -> None:
        """Write the last line and stop."""
        if not self._running:
            return
        self._running = False
        if self in _running_exporters:
            self._flush()
            _running_exporters.discard(self)
        if self.server:
            self.server.close()
        if not _running_exporters:
            _release_sigterm()

    def page(self, kind: str) -> str:
        """The metrics in one of the server's content types."""
        from callsheet.metrics import prometheus

        if kind == prometheus.JSON:
            import json

            return json.dumps(self._line) + "\n"
        return prometheus.text(
            self.registry.snapshot(), self.targets.identity, openmetrics=kind == prometheus.OPEN_METRICS
        )

    def _start_files(self) -> None:
        options: dict[str, Any] = {"tensorboard": self._tensorboard, "step": self._step}
        if self.targets.folder:
            self._writers = local_writers(self.targets, **options)
        elif self.targets.remote and self._sink:
            self._writers, parts = remote_writers(self.targets, self._sink, **options)
            dropped(self.registry).follow(lambda: sum(part.dropped for part in parts))
            self._uploader = Uploader(parts, self._on_lost)
        elif self.targets.remote:
            self._on_lost("lines", RuntimeError(f"there is no sink to store them in {self.targets.remote}"))

    def _start_port(self) -> None:
        if not self.targets.address:
            return
        from callsheet.metrics.server import Server

        try:
            self.server = Server(self.targets.address, self.page)
        except Exception as error:  # noqa: BLE001 - a missing port must not stop the program
            self._on_lost("port", error)

    def _run(self) -> None:
        """The thread: export at every interval, and once more when stopped."""
        due = time.monotonic() + min(FIRST_INTERVAL, self._interval)
        last = False
        while not last:
            try:
                self._stop_requests.get(timeout=max(0.0, due - time.monotonic()))
                last = True
            except Empty:
                # Skip the intervals that a suspended process missed.
                due = max(due + self._interval, time.monotonic())
            self._attempt("interval", self._export, last)
        for writer in self._writers:
            self._attempt(writer.name, writer.close)
        self._thread_running.release()

    def _export(self, last: bool) -> None:
        snapshot = self._snapshot(last=last)
        self._line = snapshot.line
        for writer in self._writers:
            self._attempt(writer.name, writer.take, snapshot)

    def _snapshot(self, *, last: bool) -> Snapshot:
        readings = self.registry.snapshot()
        clock = time.monotonic() - self._started_at
        line = self._maker.make(readings, now=time.time(), clock=clock, last=last)
        return Snapshot(readings, line, clock, last)

    def _attempt(self, name: str, action: Callable[..., None], *arguments: object) -> None:
        try:
            action(*arguments)
        except Exception as error:  # noqa: BLE001 - metrics must not stop the program
            self._on_lost(name, error)

    def _on_lost(self, by: str, error: Exception) -> None:
        self._lost.of(by=by).add()
        if by not in self._logged:
            self._logged.add(by)
            import logging

            logging.getLogger("callsheet.metrics").warning(
                "metrics are lost (%s): %s; this is logged once and counted", by, error
            )

    def _flush(self) -> None:
        """Have the thread write the last line, and wait for it. Safe in a signal handler: it needs no lock of ours, and the queue
        is reentrant."""
        self._stop_requests.put(None)
        if self._thread_running.acquire(timeout=FLUSH_TIMEOUT):
            self._thread_running.release()
        if self._uploader:
            self._uploader.finish(FLUSH_TIMEOUT)

    def _abandon(self) -> None:
        """In a forked child: let go of the parent's files and port."""
        self._running = False
        held: list[Writer | Server] = [*self._writers, *([self.server] if self.server else [])]
        for each in held:
            with contextlib.suppress(OSError):
                each.abandon()


_running_exporters: weakref.WeakSet[Exporter] = weakref.WeakSet()
_handles_sigterm = False


def _close_all() -> None:
    for exporter in list(_running_exporters):
        exporter.close()


def _after_fork() -> None:
    for exporter in list(_running_exporters):
        exporter._abandon()
    _running_exporters.clear()


def _catch_sigterm() -> None:
    """Handle the signal only if it would end the process at once, and only where Python allows it."""
    global _handles_sigterm
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _on_sigterm)
        _handles_sigterm = True


def _release_sigterm() -> None:
    global _handles_sigterm
    if _handles_sigterm and threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGTERM) is _on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _handles_sigterm = False


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    """Write the last lines, then end by the signal."""
    for exporter in list(_running_exporters):
        exporter._flush()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
