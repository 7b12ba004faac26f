"""The learner's side: copies the rollouts of all writers once, straight into the arrays of a batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Closeable, Context
from callsheet.runtime.limits import memory_limit
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.endpoint_handler import EndpointHandler, RefuseLink
from callsheet.runtime.link.frame import Frame
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.link.listener import Listener
from callsheet.runtime.link.peer import Peer
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline
from callsheet.runtime.stream.delivery_log import Cursor, DeliveryLog
from callsheet.runtime.stream.sender import ACKNOWLEDGE
from callsheet.runtime.trajectories.batch import Axis, Batch, BatchBuffers, check_axis
from callsheet.runtime.trajectories.batch_builder import (
    SERVICE,
    WINDOW,
    BatchBuilder,
    PendingItems,
    ReaderStats,
    WriterState,
)


class TrajectoryReader(Closeable):
    """Reads batches of rollouts. Faster writers wait.

    A learner::

        with Context.from_env() as ctx, TrajectoryReader(ctx, "trajectories", axis=1) as reader:
            while True:
                batch = reader.read(32)             # 32 rollouts [T, B, ...] as [T, 32 * B, ...]
                reader.version = learn(batch.arrays, batch.fresh)

    `read` copies each rollout once, from shared memory or the network, into preallocated arrays. A batch is valid until
    the next `read` but one (`buffers=2`); or pass your own arrays as ``out``.

    To lose nothing when the learner dies, store `cursor()` together with your results, then call `durable(cursor)`. A
    restarted learner passes the stored cursor as ``cursor=``.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        schema: Schema | None = None,
        *,
        window: int = WINDOW,
        axis: Axis = None,
        max_policy_lag: int | None = None,
        cursor: Mapping[str, Sequence[Sequence[int]]] | None = None,
        buffers: int = 2,
    ) -> None:
        window = limits.window(window)
        buffers = limits.integer("buffers", buffers, 2)
        if max_policy_lag is not None:
            max_policy_lag = limits.integer("max_policy_lag", max_policy_lag, 0)
        self.version = 0
        """The current policy version; an item's lag is measured against it. Set by the learner."""
        self.max_policy_lag = max_policy_lag
        """Items that lag more are masked in `Batch.fresh` and counted; None disables this."""
        self.schema: Schema | None = None
        """The items' schema: as given, or that of the first item received."""
        self._context = context
        self._axis = axis
        self._buffers = buffers
        self._delivery_log = DeliveryLog(cursor)
        self._backlog: deque[PendingItems] = deque()
        self._batch_buffers: BatchBuffers | None = None
        self._builder: BatchBuilder | None = None
        self._stats = ReaderStats()
        self._closed = False
        self._batch = 1
        if schema is not None:
            self._check(schema)
            self.schema = schema
        self._listener = Listener(
            context,
            endpoint,
            EndpointHandler(SERVICE, self._accept, self._on_disconnect, expected_schema=lambda: self.schema),
            window=window,
        )
        metrics = context.data_plane_metrics.track("TrajectoryReader", endpoint, self.counts)
        self._stats.lag_metric = metrics.lag

    @property
    def address(self) -> str:
        """The address it listens on."""
        return self._listener.address

    @property
    def writers(self) -> list[str]:
        """Names of all writers so far; `Batch.writers` are indices into this list."""
        return self._delivery_log.names

    @property
    def pending(self) -> int:
        """Items already received for the batch that a timed-out `read` was waiting for."""
        return self._builder.count if self._builder else 0

    def read(
        self, batch: int, timeout: float | None = None, out: Mapping[str, np.ndarray] | None = None
    ) -> Batch:
        """Read `batch` items, waiting until they are there. After a timeout, items received so far count for the next
        call."""
        batch = limits.integer("batch", batch, 1)
        self._context.stop.check()
        self._batch = batch
        deadline = Deadline(timeout)
        self._open(self._listener.poll(0))
        while self.schema is None:
            self._wait(deadline, 0, batch)
        builder = self._begin(batch, out)
        builder.take(self._backlog)
        while builder.count < batch:
            self._wait(deadline, builder.count, batch)
            builder.take(self._backlog)
        self._builder = None
        self._listener.flush_releases()  # writers continue while the caller computes
        self._stats.batch(builder, self.version, self.max_policy_lag)
        return builder.batch

    def cursor(self) -> Cursor:
        """What was read so far from each writer, as JSON-compatible data. Store it together with your results."""
        return self._delivery_log.cursor()

    def durable(self, cursor: Mapping[str, Sequence[Sequence[int]]]) -> None:
        """Everything this cursor covers is safely stored: writers may drop it."""
        notify = self._delivery_log.mark_durable(cursor)
        for peer in self._listener.peers:
            if peer.name in notify:
                body = self._delivery_log.acknowledgement(peer.name, peer.incarnation)
                peer.send(m.Header(ACKNOWLEDGE, body=body))

    def counts(self) -> dict[str, float]:
        """Counters; `waited` is the time that `read` waited for items. Any thread may call this."""
        backlog = sum(pending.count - pending.at for pending in list(self._backlog))
        listener = self._listener.counts
        return {
            **self._stats.counts(),
            "waiting": backlog,
            "writers": len(self._listener.peers),
            "frames": listener.frames,
            "bytes": listener.bytes,
            "hellos": listener.hellos,
            "refused": listener.refused,
            "expelled": listener.protocol_errors,
            "lost": listener.lost,
        }

    def lags(self) -> dict[int, int]:
        """Number of items that lagged up to 0, 1, 3, 7, 15, ... versions."""
        return self._stats.lags()

    def close(self) -> None:
        """Stop reading; writers keep what was not read and wait for the next reader."""
        if not self._closed:
            self._closed = True
            self._backlog.clear()
            self._builder = self._batch_buffers = None
            self._listener.close()
            self._context.data_plane_metrics.untrack(self.counts)

    def _check(self, schema: Schema) -> None:
        if not schema.fixed:
            raise UserError(f"some lengths are free in {schema}", fix="give every array one shape")
        check_axis(schema, self._axis)

    def _accept(self, hello: m.Hello, schema: Schema | None) -> bytes:
        if schema is None:
            raise RefuseLink("it does not say which arrays it writes")
        if self.schema is None:
            # A hello alone decides nothing: a writer that never sends an item must not lock out the others.
            try:
                self._check(schema)
            except UserError as error:
                raise RefuseLink(error.message) from None
            size, most = self._batch * self._buffers * schema.layout(1).nbytes, memory_limit() // 2
            if size > most:
                raise RefuseLink(f"batches of its items would take {size:,} bytes, and there are {most:,}")
        elif schema.hash != self.schema.hash:
            raise RefuseLink(
                f"its arrays are not those of the reader: {schema.difference(self.schema)}",
                schema=self.schema,
            )
        return self._delivery_log.acknowledgement(hello.name, hello.incarnation)

    def _on_disconnect(self, peer: Peer) -> None:
        """Drop what a writer sent and we did not copy: it resends that, if it lives. Otherwise a writer that keeps
        reconnecting would fill the backlog."""
        if peer.unreleased:
            # In place: the builder that fills from this backlog may be what noticed the disconnect.
            waiting = list(self._backlog)
            self._backlog.clear()
            for pending in waiting:
                if pending.frame is None or pending.frame.peer is not peer:
                    self._backlog.append(pending)
                elif pending.at < pending.count:
                    last = pending.sequence + pending.at - 1
                    pending.progress.received = min(pending.progress.received, last)
        if peer.state is not None:
            self._delivery_log.on_disconnect(peer.name)

    def _wait(self, deadline: Deadline, have: int, batch: int) -> None:
        begun = time.monotonic()
        frames = self._listener.poll(deadline.left() if deadline.at is not None else None)
        self._stats.waited += time.monotonic() - begun
        self._open(frames)
        if not frames and deadline.passed:
            raise TimedOut(
                f"only {have} of {batch} items arrived in time",
                fix="they count for the next read: call it again",
            )

    def _begin(self, batch: int, out: Mapping[str, np.ndarray] | None) -> BatchBuilder:
        assert self.schema is not None
        builder = self._builder
        if builder is not None:
            if len(builder.batch) == batch and builder.out is out:
                return builder
            self._backlog.extendleft(reversed(builder.take_back()))  # the batch size or `out` has changed
        if self._batch_buffers is None or self._batch_buffers.count != batch:
            self._batch_buffers = BatchBuffers(self.schema, self._axis, batch, self._buffers)
        self._builder = BatchBuilder(self._batch_buffers.next(out), out)
        return self._builder

    def _open(self, frames: list[Frame]) -> None:
        """Queue the items of these frames, in order, even of frames with nothing new: a resent frame may share its
        block with the original, which must not be released before it is copied."""
        for frame in frames:
            peer: Peer = frame.peer
            if not peer.alive:
                continue
            schema = self.schema or peer.schema
            assert schema is not None, "a writer without a schema is refused"
            try:
                if peer.state is None:
                    sender = self._delivery_log.sender(peer.name)
                    peer.state = WriterState(sender.number, sender.progress(peer.incarnation))
                self._backlog.append(peer.state.open(frame, schema, self._stats))
                self.schema = schema
            except m.BadMessage as error:
                self._stats.bad += 1
                self._listener.protocol_error(peer, str(error))
