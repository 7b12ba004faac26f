"""Exports a process's metrics while it runs: a Prometheus port, JSON lines, TensorBoard files, as its environment says.

One thread looks at the registry at every interval; the program itself is never waited for and never waits. What cannot
be written is counted, said once, and costs nothing else.
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
from callsheet.metrics.targets import Outlets, split_address
from callsheet.metrics.writers import Moment, Uploader, Writer, local, remote

if TYPE_CHECKING:
    from callsheet.metrics.files import Sink
    from callsheet.metrics.server import Server

INTERVAL: Final = 5.0
"""Seconds between two lines."""
FIRST: Final = 1.0
"""Seconds until the first one: somebody may be watching the start."""
LAST_WORDS: Final = 5.0
"""Seconds that the end of a program waits for its last line, and as many for its last upload."""


class Exporter:
    """Exports from `start` to `close`; a context manager. Outside an experiment there is nowhere to export to.

    On SIGTERM the last line is written before the process ends, unless the program handles the signal itself; then
    closing the exporter, or the end of the interpreter, writes it.
    """

    def __init__(
        self,
        registry: Registry,
        outlets: Outlets | None = None,
        *,
        sink: Sink | None = None,
        interval: float = INTERVAL,
        tensorboard: bool = True,
        step: Counter | None = None,
    ) -> None:
        """`sink` puts objects where the run's results are not a local folder. `step` counts TensorBoard's horizontal
        axis; without it, that is the seconds since the start."""
        self.registry = registry
        self.outlets = Outlets.from_env() if outlets is None else outlets
        if self.outlets.address:
            split_address(self.outlets.address)
        self._sink = sink
        self._interval = interval
        self._tensorboard = tensorboard
        self._step = step
        self._maker = LineMaker(self.outlets.identity, interval)
        self._began = time.monotonic()
        self._lost = lost(registry)
        self._said: set[str] = set()
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._ended = threading.Lock()
        self._running = False
        self._writers: list[Writer] = []
        self._uploader: Uploader | None = None
        self.server: Server | None = None
        """The port, where there is one."""

    def __enter__(self) -> Exporter:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin. What cannot begin is counted and said; the rest goes on without it."""
        if self._running:
            return
        self._running = True
        add_process_metrics(self.registry)
        self._line = self._moment(last=False).line
        self._begin_files()
        self._begin_port()
        if not self._writers and self.server is None:
            return  # nobody would ever see what a thread found
        self._ended.acquire()
        threading.Thread(target=self._run, name="callsheet-metrics", daemon=True).start()
        _alive.add(self)
        _catch_sigterm()

    def close(self) -> None:
        """Write the last line and end."""
        if not self._running:
            return
        self._running = False
        if self in _alive:
            self._say_last()
            _alive.discard(self)
        if self.server:
            self.server.close()
        if not _alive:
            _release_sigterm()

    def page(self, kind: str) -> str:
        """The metrics in one of the server's content types."""
        from callsheet.metrics import prometheus as exposition

        if kind == exposition.JSON:
            import json

            return json.dumps(self._line) + "\n"
        return exposition.text(
            self.registry.snapshot(), self.outlets.identity, openmetrics=kind == exposition.OPEN_METRICS
        )

    def _begin_files(self) -> None:
        options: dict[str, Any] = {"tensorboard": self._tensorboard, "step": self._step}
        if self.outlets.folder:
            self._writers = local(self.outlets, **options)
        elif self.outlets.remote and self._sink:
            self._writers, parts = remote(self.outlets, self._sink, **options)
            dropped(self.registry).follow(lambda: sum(part.dropped for part in parts))
            self._uploader = Uploader(parts, self._on_lost)
        elif self.outlets.remote:
            told = f"no sink was given to put them into {self.outlets.remote}"
            self._on_lost("lines", RuntimeError(told))

    def _begin_port(self) -> None:
        if not self.outlets.address:
            return
        from callsheet.metrics.server import Server

        try:
            self.server = Server(self.outlets.address, self.page)
        except Exception as error:  # noqa: BLE001 - a program that learns is worth more than its port
            self._on_lost("port", error)

    def _run(self) -> None:
        """The thread: a moment at every interval, and a last one when asked."""
        due = time.monotonic() + min(FIRST, self._interval)
        last = False
        while not last:
            try:
                self._asked.get(timeout=max(0.0, due - time.monotonic()))
                last = True
            except Empty:
                # Beats that were missed, as in a process that was stopped for a while, are left out.
                due = max(due + self._interval, time.monotonic())
            self._attempt("beat", self._beat, last)
        for writer in self._writers:
            self._attempt(writer.name, writer.close)
        self._ended.release()

    def _beat(self, last: bool) -> None:
        moment = self._moment(last=last)
        self._line = moment.line
        for writer in self._writers:
            self._attempt(writer.name, writer.take, moment)

    def _moment(self, *, last: bool) -> Moment:
        readings = self.registry.snapshot()
        clock = time.monotonic() - self._began
        line = self._maker.make(readings, now=time.time(), clock=clock, last=last)
        return Moment(readings, line, clock, last)

    def _attempt(self, name: str, action: Callable[..., None], *arguments: object) -> None:
        try:
            action(*arguments)
        except Exception as error:  # noqa: BLE001 - no metric is worth the program
            self._on_lost(name, error)

    def _on_lost(self, by: str, error: Exception) -> None:
        self._lost.of(by=by).add()
        if by not in self._said:
            self._said.add(by)
            import logging

            logging.getLogger("callsheet.metrics").warning(
                "metrics are lost (%s): %s; this is said once and counted from now on", by, error
            )

    def _say_last(self) -> None:
        """Let the thread write the last line, and wait for it. Safe in a signal's handler: no lock of ours is needed,
        and the queue may be entered again."""
        self._asked.put(None)
        if self._ended.acquire(timeout=LAST_WORDS):
            self._ended.release()
        if self._uploader:
            self._uploader.finish(LAST_WORDS)

    def _abandon(self) -> None:
        """In a forked child: the thread, the files and the port are the parent's."""
        self._running = False
        held: list[Writer | Server] = [*self._writers, *([self.server] if self.server else [])]
        for each in held:
            with contextlib.suppress(OSError):
                each.abandon()


_alive: weakref.WeakSet[Exporter] = weakref.WeakSet()
_ours = False


def _close_all() -> None:
    for exporter in list(_alive):
        exporter.close()


def _after_fork() -> None:
    for exporter in list(_alive):
        exporter._abandon()
    _alive.clear()


def _catch_sigterm() -> None:
    """Take the signal only where it would end the process at once, and only where Python allows it."""
    global _ours
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _on_sigterm)
        _ours = True


def _release_sigterm() -> None:
    global _ours
    if _ours and threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGTERM) is _on_sigterm:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _ours = False


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    """Write the last lines, then end as if nobody had looked."""
    for exporter in list(_alive):
        exporter._say_last()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
