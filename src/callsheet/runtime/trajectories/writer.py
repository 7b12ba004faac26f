"""The actor's side: sends rollouts in order; a slow learner makes the actor wait."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Closeable, Context
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream.balanced_sender import BalancedSender
from callsheet.runtime.stream.durable_sender import DurableSender
from callsheet.runtime.stream.sender import StreamSender
from callsheet.runtime.trajectories.batch_builder import SERVICE, WINDOW

log = logging.getLogger("callsheet.runtime")
KEEP = 64 * 1024 * 1024


class TrajectoryWriter(Closeable):
    """Writes rollouts: dictionaries of arrays, usually `[T, B, ...]`, with fixed names, types and shapes.

    An actor::

        with Context.from_env() as ctx, TrajectoryWriter(ctx, "trajectories") as writer:
            while True:
                writer.write(roll_out(policy), version=policy.version)

    `write` copies a rollout once; small ones share a frame. When `window` frames are in flight, `write` waits for the
    reader. `ahead` limits the rollouts in flight, which keeps small ones fresh. The writer reconnects and resends on its
    own.

    With ``durable=True``, rollouts are kept (up to `keep` bytes) until the reader makes them durable, and resent to a
    restarted reader: nothing is lost while this process lives. `durable` tells how far that is; `previous` tells the same
    for earlier incarnations of this replica.

    With ``spread=True``, rollouts are balanced over all readers of the endpoint.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        schema: Schema | None = None,
        *,
        window: int = WINDOW,
        ahead: int | None = None,
        durable: bool = False,
        keep: int = KEEP,
        connect_to: str | None = None,
        spread: bool = False,
    ) -> None:
        if spread and (durable or connect_to):
            raise UserError(
                "spread=True cannot be combined with durable=True or connect_to",
                fix="durable rollouts go to one reader: omit spread",
            )
        window = limits.window(window)
        ahead = None if ahead is None else limits.integer("ahead", ahead, 1)
        self.incarnation = context.incarnation
        """The incarnation of this process; readers see it in `Batch.incarnations`."""
        self._context = context
        self._endpoint = endpoint
        self._durable = durable
        self._single: StreamSender | None = None
        self._balanced: BalancedSender | None = None

        def plain(address: str, schema: Schema | None) -> StreamSender:
            where = (context, endpoint, SERVICE)
            return StreamSender(*where, schema=schema, address=address, window=window, ahead=ahead)

        if spread:
            self._balanced = BalancedSender(context, endpoint, schema, plain)
        elif durable:
            self._single = DurableSender(
                context,
                endpoint,
                SERVICE,
                schema=schema,
                address=connect_to or "",
                window=window,
                ahead=ahead,
                keep=keep,
            )
        else:
            self._single = plain(connect_to or "", schema)
        self._sender: StreamSender | BalancedSender = self._single or self._balanced  # type: ignore[assignment]
        context.data_plane_metrics.track("TrajectoryWriter", endpoint, self.counts)

    def write(self, arrays: Mapping[str, object], version: int = 0, timeout: float | None = None) -> int:
        """Copy and send a rollout; `version` is that of the policy that made it. Returns its sequence number, from 1."""
        if timeout is not None:
            limits.seconds("timeout", timeout)
        return self._sender.put(arrays, version, timeout)

    def connect(self, timeout: float | None = None) -> None:
        """Connect now instead of at the first `write`; the schema must be known."""
        self._sender.connect(timeout)

    def rollout(
        self, version: int = 0, timeout: float | None = None
    ) -> AbstractContextManager[dict[str, np.ndarray]]:
        """A rollout to fill in place, step by step, which saves a copy; it is sent at the end of the block::

        with writer.rollout(version) as arrays:
            for t in range(T):
                arrays["observation"][t] = observation
        """
        if timeout is not None:
            limits.seconds("timeout", timeout)
        return self._sender.fill(version, timeout)

    def flush(self, timeout: float | None = None, *, durable: bool = False) -> None:
        """Wait until the reader has everything or, for a durable writer, until everything is durable."""
        if self._single is not None:
            self._single.flush(timeout, durable=durable)
        elif durable:
            raise UserError("nothing becomes durable with spread=True", fix="omit spread")
        elif self._balanced is not None:
            self._balanced.flush(timeout)

    @property
    def durable(self) -> int:
        """Everything up to this sequence number is durable, as the reader confirmed with `durable(cursor)`."""
        sender = self._single_sender()
        sender.poll()
        return sender.durable

    @property
    def previous(self) -> tuple[tuple[int, int], ...]:
        """The same for earlier incarnations of this replica: (incarnation, sequence) each. What a killed process had
        sent may become durable later, so check again."""
        return self._single_sender().previous

    def counts(self) -> dict[str, float]:
        """Counters; `waited` is the time that `write` waited for the reader."""
        return self._sender.counts()

    def close(self, timeout: float | None = 5.0) -> None:
        """Deliver what is left, even if the process was asked to stop, and close; logs what was dropped."""
        before = self.counts()["dropped"]
        self._sender.close(timeout)
        dropped = int(self.counts()["dropped"] - before)
        # Without `durable`, rollouts were for a reader that continues. If both sides stop and the reader went first,
        # nobody misses them, so they are counted but not logged.
        missed = self._durable or not (self._single is not None and self._single.receiver_gone_first)
        if dropped and missed:
            log.warning(
                "%s: %d items were dropped because the reader did not take them", self._endpoint, dropped
            )
        self._context.data_plane_metrics.untrack(self.counts)

    def _single_sender(self) -> StreamSender:
        if self._single is None:
            raise UserError("nothing becomes durable with spread=True", fix="omit spread")
        return self._single
