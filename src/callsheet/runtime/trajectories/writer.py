"""The actor's end: rollouts go out in the order of writing, and a slow learner makes the actor wait."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType

import numpy as np

from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Context
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream.balanced_sender import BalancedSender
from callsheet.runtime.stream.durable_sender import DurableSender
from callsheet.runtime.stream.sender import StreamSender
from callsheet.runtime.trajectories.batch_builder import SERVICE, WINDOW

log = logging.getLogger("callsheet.runtime")
KEEP = 64 * 1024 * 1024


class TrajectoryWriter:
    """Writes rollouts: dictionaries of arrays, usually `[T, B, ...]`, all of the same names, types and shapes.

    An actor::

        with Context.from_env() as ctx, TrajectoryWriter(ctx, "trajectories") as writer:
            while True:
                writer.write(roll_out(policy), version=policy.version)

    A rollout is copied once, by `write`; small ones travel together. When `window` frames are on their way, `write`
    waits until the reader has taken one; `ahead` limits the rollouts that are on their way, which small ones may need:
    what waits grows old. Reconnecting, and sending again what a reader did not take, is done inside.

    With ``durable=True`` what the reader has not made durable is kept, up to `keep` bytes, and sent again to a reader
    that was started anew: nothing is lost as long as this process lives. `durable` says how far it is; `previous` the
    same for earlier starts of this replica.

    With ``spread=True`` rollouts are distributed over all readers of the endpoint.
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
                "spread=True goes with neither durable=True nor connect_to",
                fix="what must not be lost goes to one reader: leave spread out",
            )
        window = limits.window(window)
        ahead = None if ahead is None else limits.integer("ahead", ahead, 1)
        self.incarnation = context.incarnation
        """Which start of this process it is: readers see it in `Batch.incarnations`."""
        self._context = context
        self._endpoint = endpoint
        self._durable = durable
        self._single: StreamSender | None = None
        self._balanced: BalancedSender | None = None
        address = connect_to or ""
        if spread:
            self._balanced = BalancedSender(
                context,
                endpoint,
                schema,
                lambda to, what: StreamSender(
                    context, endpoint, SERVICE, schema=what, address=to, window=window, ahead=ahead
                ),
            )
        elif durable:
            self._single = DurableSender(
                context,
                endpoint,
                SERVICE,
                schema=schema,
                address=address,
                window=window,
                ahead=ahead,
                keep=keep,
            )
        else:
            self._single = StreamSender(
                context, endpoint, SERVICE, schema=schema, address=address, window=window, ahead=ahead
            )
        self._sender: StreamSender | BalancedSender = self._single or self._balanced  # type: ignore[assignment]
        context.data_plane_metrics.track("TrajectoryWriter", endpoint, self.counts)

    def write(self, arrays: Mapping[str, object], version: int = 0, timeout: float | None = None) -> int:
        """Copy a rollout and send it; `version` is that of the policy that made it. Its sequence, from 1."""
        if timeout is not None:
            limits.seconds("timeout", timeout)
        return self._sender.put(arrays, version, timeout)

    def connect(self, timeout: float | None = None) -> None:
        """Have a connection, which `write` makes otherwise; the schema must be known."""
        self._sender.connect(timeout)

    def rollout(
        self, version: int = 0, timeout: float | None = None
    ) -> AbstractContextManager[dict[str, np.ndarray]]:
        """A rollout to be filled in place, step by step, and sent at the end of the block; it saves a copy::

        with writer.rollout(version) as arrays:
            for t in range(T):
                arrays["observation"][t] = observation
        """
        if timeout is not None:
            limits.seconds("timeout", timeout)
        return self._sender.fill(version, timeout)

    def flush(self, timeout: float | None = None, *, durable: bool = False) -> None:
        """Wait until the reader has everything; or, for a durable writer, until everything is durable."""
        if self._single is not None:
            self._single.flush(timeout, durable=durable)
        elif durable:
            raise UserError("nothing becomes durable with spread=True", fix="leave spread out")
        elif self._balanced is not None:
            self._balanced.flush(timeout)

    @property
    def durable(self) -> int:
        """The sequence up to which everything is durable; the reader says so with `durable(cursor)`."""
        sender = self._single_sender()
        sender.poll()
        return sender.durable

    @property
    def previous(self) -> tuple[tuple[int, int], ...]:
        """How far earlier starts of this replica came: their incarnations and what is durable of each. Items that a
        killed process had sent may become durable later, so look again with `durable`."""
        return self._single_sender().previous

    def counts(self) -> dict[str, float]:
        """How it is going, in numbers; `waited` are the seconds that `write` had to wait for the reader."""
        return self._sender.counts()

    def close(self, timeout: float | None = 5.0) -> None:
        """Hand over what is left, also when the process was asked to stop, and end; what nobody takes is told."""
        before = self.counts()["dropped"]
        self._sender.close(timeout)
        dropped = int(self.counts()["dropped"] - before)
        # What is not durable was for a reader that goes on: when both sides have ended, and it went first, nobody misses
        # the rollouts on their way. They are counted all the same.
        missed = self._durable or not (self._single is not None and self._single.receiver_gone_first)
        if dropped and missed:
            log.warning("%s: %d items were dropped, the reader did not take them", self._endpoint, dropped)
        self._context.data_plane_metrics.untrack(self.counts)

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _single_sender(self) -> StreamSender:
        if self._single is None:
            raise UserError("nothing becomes durable with spread=True", fix="leave spread out")
        return self._single
