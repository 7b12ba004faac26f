"""The learner's end: rollouts of all writers, copied once, straight into the arrays of a batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Context
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


class TrajectoryReader:
    """Reads batches of rollouts. Writers that are faster than it wait.

    A learner::

        with Context.from_env() as ctx, TrajectoryReader(ctx, "trajectories", axis=1) as reader:
            while True:
                batch = reader.read(32)             # 32 rollouts [T, B, ...] as [T, 32 * B, ...]
                reader.version = learn(batch.arrays, batch.fresh)

    `read` copies each rollout once, from the writer's memory or from the network, into arrays that are made once. A
    batch is valid until the next `read` but one (`buffers=2`); or pass arrays of your own as ``out``.

    To lose nothing when the learner dies, store `cursor()` together with what you made of the batches, then call
    `durable(cursor)`; a learner that starts again passes ``cursor=`` what it finds there.
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
        """The policy's version now: what items lag behind. The learner sets it."""
        self.max_policy_lag = max_policy_lag
        """Items that lag more than this are masked in `Batch.fresh` and counted; None: none are."""
        self.schema: Schema | None = None
        """What items look like: as given, or as those of the writer whose item came first."""
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
        """Where it listens."""
        return self._listener.address

    @property
    def writers(self) -> list[str]:
        """Names of all writers that were heard of; `Batch.writers` are places in it."""
        return self._delivery_log.names

    @property
    def pending(self) -> int:
        """Items that are here already of the batch that a timed-out `read` was waiting for."""
        return self._builder.count if self._builder else 0

    def read(
        self, batch: int, timeout: float | None = None, out: Mapping[str, np.ndarray] | None = None
    ) -> Batch:
        """So many items, as soon as they are there. When the time is over, what has come counts for the next call."""
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
        self._listener.flush_releases()  # writers go on while the caller computes
        self._stats.batch(builder, self.version, self.max_policy_lag)
        return builder.batch

    def cursor(self) -> Cursor:
        """What was read so far, of which writer: to be stored with what was made of it. It can be written as JSON."""
        return self._delivery_log.cursor()

    def durable(self, cursor: Mapping[str, Sequence[Sequence[int]]]) -> None:
        """All that this cursor covers survives the death of this process: writers may forget it."""
        news = self._delivery_log.mark_durable(cursor)
        for peer in self._listener.peers:
            if peer.name in news:
                body = self._delivery_log.acknowledgement(peer.name, peer.incarnation)
                peer.send(m.Header(ACKNOWLEDGE, body=body))

    def counts(self) -> dict[str, float]:
        """How it is going, in numbers; `waited` are the seconds that `read` had to wait for items. Any thread may ask."""
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
        """How many items lagged up to 0, 1, 3, 7, 15, ... versions."""
        return self._stats.lags()

    def close(self) -> None:
        """Stop reading; writers keep what was not read and wait for the next reader."""
        if not self._closed:
            self._closed = True
            self._backlog.clear()
            self._builder = self._batch_buffers = None
            self._listener.close()
            self._context.data_plane_metrics.untrack(self.counts)

    def __enter__(self) -> TrajectoryReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self, schema: Schema) -> None:
        if not schema.fixed:
            raise UserError(f"some lengths are free in {schema}", fix="give every array one shape")
        check_axis(schema, self._axis)

    def _accept(self, hello: m.Hello, schema: Schema | None) -> bytes:
        if schema is None:
            raise RefuseLink("it does not say which arrays it writes")
        if self.schema is None:
            # A hello alone settles nothing: one that never sends an item must not keep all others out.
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
        """A writer is no longer there: what it sent and was not copied comes again, if it lives. Else one that comes and
        goes would have a window each time."""
        if peer.unreleased:
            # In place: a batch that is being filled from the backlog may be what noticed it.
            waiting = list(self._backlog)
            self._backlog.clear()
            for pending in waiting:
                if pending.frame is None or pending.frame.peer is not peer:
                    self._backlog.append(pending)
                elif pending.at < pending.count:
                    pending.progress.received = min(
                        pending.progress.received, pending.sequence + pending.at - 1
                    )
        if peer.state is not None:
            self._delivery_log.on_disconnect(peer.name)

    def _wait(self, deadline: Deadline, have: int, batch: int) -> None:
        begun = time.monotonic()
        frames = self._listener.poll(deadline.left() if deadline.at is not None else None)
        self._stats.waited += time.monotonic() - begun
        self._open(frames)
        if not frames and deadline.passed:
            raise TimedOut(
                f"{have} of {batch} items came in time",
                fix="they count for the next read: just call it again",
            )

    def _begin(self, batch: int, out: Mapping[str, np.ndarray] | None) -> BatchBuilder:
        assert self.schema is not None
        builder = self._builder
        if builder is not None:
            if len(builder.batch) == batch and builder.out is out:
                return builder
            self._backlog.extendleft(reversed(builder.take_back()))  # into other arrays than was thought
        if self._batch_buffers is None or self._batch_buffers.count != batch:
            self._batch_buffers = BatchBuffers(self.schema, self._axis, batch, self._buffers)
        self._builder = BatchBuilder(self._batch_buffers.next(out), out)
        return self._builder

    def _open(self, frames: list[Frame]) -> None:
        """See what is in these frames. They stay in their order, also those with nothing new: the memory of a frame
        that was sent again may be that of the first of its kind, and must not be given back before it is copied."""
        for frame in frames:
            peer: Peer = frame.peer
            if not peer.alive:
                continue
            schema = self.schema or peer.schema
            assert schema is not None, "a writer that says none is refused"
            try:
                if peer.state is None:
                    sender = self._delivery_log.sender(peer.name)
                    peer.state = WriterState(sender.number, sender.progress(peer.incarnation))
                self._backlog.append(peer.state.open(frame, schema, self._stats))
                self.schema = schema
            except m.BadMessage as error:
                self._stats.bad += 1
                self._listener.protocol_error(peer, str(error))
