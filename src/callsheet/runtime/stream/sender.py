"""The sending side of a stream: items go in one by one, frames go out and arrive in order, exactly once.

If nothing is in flight, a frame is sent at once, so a slow sender's items arrive without delay. Otherwise it is
filled first, so a fast sender's items are cheap.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import numpy as np

from callsheet.errors import CallsheetError, UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Context
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.blocks import Block
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.link import Link, TimedOut
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline
from callsheet.runtime.stream.delivery_log import MAX_SEQUENCE, Acknowledgement, decode_acknowledgement
from callsheet.runtime.stream.flusher import BackgroundFlusher
from callsheet.runtime.stream.packing import FRAME_BYTES, MAX_ITEMS, FramePacker, ItemViews

ITEMS: Final = 1
"""Verb: items of a stream."""
ACKNOWLEDGE: Final = 2
"""Verb, to the sender: what is durable."""
_MIN_FRAMES: Final = 4
_STOP_CHECK_EVERY: Final = 0.5
"""Seconds between two checks, during a longer wait, whether the process should stop."""
_MAX_CACHED_BYTES: Final = 4 << 20
"""More bytes in flight through shared memory than fit into the CPU caches only cost time."""


class StreamSender:
    """Sends items to one receiver. Any thread may call it, one at a time."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        service: str,
        *,
        schema: Schema | None = None,
        address: str = "",
        window: int = 4,
        ahead: int | None = None,
    ) -> None:
        self.context = context
        self.endpoint = endpoint
        self.sequence = 0
        """Sequence number of the last item put in."""
        self.durable = 0
        """All items up to this one are durable at the receiver."""
        self.previous: tuple[tuple[int, int], ...] = ()
        """The same for earlier incarnations of this process: (incarnation, sequence) each."""
        self.waited = 0.0
        """Seconds that calls waited for the receiver."""
        self.lost = 0
        """Items that could not be delivered before `close` ended."""
        self.receiver_gone_first = False
        """Whether this process was asked to stop and the receiver had already gone."""
        self.ahead = ahead
        """Items that may be in flight; None: as many as the frames hold."""
        self._window = window if ahead is None else min(window, ahead)
        self.link = Link(
            context,
            endpoint,
            service,
            address=address,
            blocks=self._window,
            on_connect=self._on_connect,
            hello_body=self._hello,
            on_data=self._on_data,
        )
        self.packer: FramePacker | None = None
        self.closed = False
        self._lock = threading.Lock()
        self._flusher = BackgroundFlusher(self)
        self._error: Exception | None = None
        self._views: ItemViews | None = None
        self._count = 0
        self._first = 0
        self._version = 0
        self._seen_first = 0
        self._block: Block | None = None
        self._views_cache: dict[int, tuple[memoryview, ItemViews]] = {}
        if schema is not None:
            self._set_schema(schema)

    def connect(self, timeout: float | None = None) -> None:
        """Connect. A receiver that expects other arrays refuses here."""
        with self._lock:
            self._check_usable()
            self.link.connect(timeout)

    def start(self) -> None:
        """Connect in the background."""
        self._flusher.wake()

    def put(self, arrays: Mapping[str, object], version: int = 0, timeout: float | None = None) -> int:
        """Copy one item and send it; waits while too much is in flight. Returns its sequence number."""
        with self._lock:
            if self._views is None or version != self._version:
                self._open_frame(arrays, version, timeout)
            assert self._views is not None
            assert self.packer is not None
            self.packer.put(self._views, self._count, arrays)
            count = self._count = self._count + 1
            self.sequence += 1
            if count == self.packer.capacity or (count == 1 and self._delivered()):
                self._close_frame()
            elif self._flusher.idle:
                self._flusher.wake()
            return self.sequence

    @contextmanager
    def fill(self, version: int = 0, timeout: float | None = None) -> Iterator[dict[str, np.ndarray]]:
        """Arrays of one item to fill in place. The item is sent at the end of the block, unless it raises."""
        with self._lock:
            version, deadline = limits.integer("version", version, 0, MAX_SEQUENCE), Deadline(timeout)
            packer = self._ready({}, timeout)
            self._close_frame()
            self._discard_open_frame()
            block = self._reserve(packer.schema.layout(1).nbytes, deadline.timeout)
        layout = packer.schema.layout(1)
        try:
            yield {name: array[0] for name, array in layout.views(block.view).items()}
        except BaseException:
            with self._lock:
                self.link.cancel(block)
            raise
        with self._lock:
            self._close_frame()
            self._discard_open_frame()
            self.sequence += 1
            self.link.post(self._header(1, self.sequence, version), block, layout.nbytes)

    def flush(self, timeout: float | None = None, *, durable: bool = False) -> None:
        """Wait until the receiver has everything, or until everything is durable there."""
        deadline = Deadline(timeout)
        with self._lock:
            self._check_usable()
            self._close_frame()
            self.link.check_connection()
            while not (self.durable >= self.sequence if durable else self._delivered()):
                self._wait(deadline)

    @property
    def free_frames(self) -> int:
        """Frames that could be sent now."""
        if not self._lock.acquire(blocking=False):
            return 0
        try:
            self.link.poll()
            return self.link.free if self.link.connected else 0
        finally:
            self._lock.release()

    def wait_for_room(self, seconds: float) -> None:
        """Wait up to `seconds` until a frame could be sent or something else happens."""
        with self._lock, contextlib.suppress(TimedOut):
            self._check_usable()
            self.link.poll()
            if not self.link.connected or not self.link.free:
                self._wait(Deadline(seconds))

    @property
    def filling(self) -> bool:
        """Whether a frame is partly filled."""
        return self._count > 0

    def check(self) -> None:
        """Raise the error of the background thread, if any."""
        if self._error is not None:
            raise self._error

    def poll(self) -> None:
        """Process acknowledgements, without waiting."""
        with self._lock:
            if not self.closed:
                self.link.check_connection()

    def counts(self) -> dict[str, float]:
        """Counters for the metrics."""
        link = self.link.counts
        return {
            "items": self.sequence,
            "frames": link.sent,
            "bytes": link.sent_bytes,
            "resent": link.resent,
            "connects": link.connects,
            "in_flight": self.link.in_flight,
            "waited": self.waited,
            "dropped": self.lost,
            "durable": self.durable,
            "kept": 0,
        }

    def close(self, timeout: float | None = 5.0) -> None:
        """Deliver what is left, even while the process stops, and close."""
        if self.closed:
            return
        self._flusher.stop()
        deadline = Deadline(timeout)
        with self._lock:
            self.closed = True
            self.link.ignore_stop()
            try:
                self._close_frame()
                while not self._delivered():
                    alone = not self.link.connected and self.context.stopping
                    if alone and deadline.left() > self._wait_for_receiver(timeout):
                        # The receiver is probably stopping too, and already gone.
                        deadline = Deadline(self._wait_for_receiver(timeout))
                    self._wait_in_steps(deadline)
            except CallsheetError:
                self.lost = self._undelivered()
                self.receiver_gone_first = not self.link.connected and self.context.stopping
            finally:
                self._release_resources()

    # Called by the flusher.

    def flush_due(self) -> bool:
        """Send a frame that has been open for a while; keep the connection alive."""
        if not self._lock.acquire(blocking=False):
            return False  # a call is in progress
        try:
            if self._count and self._first == self._seen_first:
                self._close_frame()
            self._seen_first = self._first if self._count else 0
            if not self.link.connected:
                self.link.try_connect()
            elif not self._delivered():
                self.link.check_connection()
            self._send_pending()
            return self._count > 0
        finally:
            self._lock.release()

    def on_flush_error(self, error: Exception) -> None:
        """Let the next call raise it."""
        self._error = error

    # Overridden by durable senders and by the replay.

    def _hello(self) -> bytes:
        """The body of the hello."""
        return b""

    def _open_frame_views(self, timeout: float | None) -> ItemViews:
        assert self.packer is not None
        block = self._block = self._reserve(self.packer.nbytes, timeout)
        cached = self._views_cache.get(block.index)
        if cached is None or cached[0] is not block.view:
            cached = self._views_cache[block.index] = (block.view, self.packer.views(block.view))
        return cached[1]

    def _send_frame(self, count: int) -> None:
        assert self.packer is not None
        assert self._block is not None
        block, self._block = self._block, None
        length = self.packer.compact(block.view, count)
        self.link.post(self._header(count, self._first, self._version), block, length)

    def _delivered(self) -> bool:
        return not self.link.in_flight

    def _undelivered(self) -> int:
        return self.link.in_flight_items + self._count

    def _wait(self, deadline: Deadline) -> None:
        begun = time.monotonic()
        self.link.wait(deadline)
        self._send_pending()
        self.waited += time.monotonic() - begun

    def _wait_in_steps(self, deadline: Deadline) -> None:
        """Wait while stop requests are ignored; in steps, because a stop changes how long to wait."""
        with contextlib.suppress(TimedOut):
            self._wait(Deadline(deadline.left(_STOP_CHECK_EVERY)))
        if deadline.passed and not self._delivered():
            raise TimedOut(f"{self.endpoint} did not take everything in time")

    def _wait_for_receiver(self, timeout: float | None) -> float:
        """Seconds that a stopping process waits for a receiver that is gone."""
        return 1.0

    def _send_pending(self) -> None:
        """Send queued frames; here frames are sent as soon as they are closed."""

    def _on_connect(self, welcome: m.Welcome) -> None:
        self._on_acknowledgement(decode_acknowledgement(welcome.body))
        self._limit_cached_bytes()

    def _limit_cached_bytes(self) -> None:
        """Over shared memory a few large frames are enough: more would not fit into the CPU caches."""
        if self.link.shared_memory and self.packer is not None:
            self.link.limit_blocks(max(_MIN_FRAMES, _MAX_CACHED_BYTES // self.packer.nbytes))

    def _on_acknowledgement(self, acknowledgement: Acknowledgement) -> None:
        mine, marks = self.context.incarnation, acknowledgement.durable
        self.durable = max([self.durable, *(sequence for start, sequence in marks if start == mine)])
        self.previous = tuple(mark for mark in marks if mark[0] != mine)

    def _release_resources(self) -> None:
        self._views_cache.clear()
        self._views = None
        self.link.close()

    def _frame_bytes(self) -> int:
        return FRAME_BYTES

    def _set_schema(self, schema: Schema) -> None:
        max_items = MAX_ITEMS if self.ahead is None else self.ahead // self._window
        packer = FramePacker(schema, self._frame_bytes(), max_items)
        if packer.nbytes > m.MAX_PAYLOAD_BYTES:
            raise UserError(
                f"an item for {self.endpoint} has {packer.nbytes:,} bytes, but a message holds at most {m.MAX_PAYLOAD_BYTES:,}",
                fix="make items smaller, for example with shorter rollouts",
            )
        self.packer = packer
        self.link.set_schema(schema)

    def _on_data(self, frame: Frame) -> None:
        if frame.header.verb == ACKNOWLEDGE:
            self._on_acknowledgement(decode_acknowledgement(frame.header.body))

    def _check_usable(self) -> None:
        self.context.stop.check()
        self.check()
        if self.closed:
            raise CallsheetError(f"the writer to {self.endpoint} is closed", fix="write before you close it")

    def _ready(self, arrays: Mapping[str, object], timeout: float | None) -> FramePacker:
        self._check_usable()
        if self.packer is None:
            if not arrays:
                raise UserError(
                    f"the arrays for {self.endpoint} are not known yet",
                    fix="give the writer a schema, or write a whole item first",
                )
            self._set_schema(Schema.of(arrays))
        if not self.link.counts.connects:
            self.link.connect(timeout)
            self._flusher.wake()
        assert self.packer is not None
        return self.packer

    def _open_frame(self, arrays: Mapping[str, object], version: int, timeout: float | None) -> None:
        version, deadline = limits.integer("version", version, 0, MAX_SEQUENCE), Deadline(timeout)
        packer = self._ready(arrays, timeout)
        self._close_frame()
        if packer.capacity > 1 and self.link.in_flight:
            self.link.poll()  # what was released meanwhile decides whether a frame is sent at once
        if self._views is None:
            self._views = self._open_frame_views(deadline.timeout)
        self._version, self._first = version, self.sequence + 1

    def _reserve(self, size: int, timeout: float | None) -> Block:
        block = self.link.try_reserve(size)
        if block is None:
            begun = time.monotonic()
            try:
                block = self.link.reserve(size, timeout)
            finally:
                self.waited += time.monotonic() - begun
        return block

    def _close_frame(self) -> None:
        if self._count:
            count, self._count, self._views = self._count, 0, None
            self._send_frame(count)

    def _discard_open_frame(self) -> None:
        """Discard a frame that was opened for an item that was then rejected: it holds a block and a sequence number."""
        if self._block is not None:
            self.link.cancel(self._block)
            self._block = self._views = None

    def _header(self, count: int, first: int, version: int) -> m.Header:
        assert self.packer is not None
        return m.Header(ITEMS, self.packer.schema.hash, count, first, version)
