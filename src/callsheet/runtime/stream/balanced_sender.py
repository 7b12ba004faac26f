"""Balances items over all receivers of an endpoint, which may come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from callsheet.runtime.context import Context
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.schema import Schema
from callsheet.runtime.stop import Deadline
from callsheet.runtime.stream.sender import StreamSender

_REFRESH_EVERY = 1.0
"""Seconds between two checks of the list of receivers."""
_DRAIN_TIMEOUT = 10.0
"""Seconds to deliver what is in flight to a receiver that left the list."""
_PAUSE = 0.001


class BalancedSender:
    """One sender per receiver. The next frame goes to the one with the most room, round robin among equals."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        schema: Schema | None,
        create: Callable[[str, Schema | None], StreamSender],
    ) -> None:
        self._context = context
        self._endpoint = endpoint
        self._schema = schema
        self._create = create
        """Creates the sender to an address."""
        self._senders: dict[str, StreamSender] = {}
        self._retiring: list[tuple[StreamSender, threading.Thread]] = []
        self._retired_counts: dict[str, float] = {}
        self._refreshed_at = 0.0
        self._current: StreamSender | None = None
        self._next = 0

    @property
    def senders(self) -> dict[str, StreamSender]:
        """The senders to the current receivers, by address."""
        return self._senders

    @property
    def current(self) -> StreamSender | None:
        """The sender that got the last item."""
        return self._current

    def connect(self, timeout: float | None = None) -> None:
        """Connect to at least one receiver."""
        self._pick_sender(Deadline(timeout))

    def put(self, arrays: Mapping[str, object], version: int = 0, timeout: float | None = None) -> int:
        """Send one item; waits while all receivers are busy. Returns its sequence number at that receiver."""
        deadline = Deadline(timeout)
        return self.choose(arrays, timeout).put(arrays, version, deadline.timeout)

    def choose(self, arrays: Mapping[str, object], timeout: float | None = None) -> StreamSender:
        """The sender for the next item: the one with a partly filled frame, or one with room."""
        if self._schema is None:
            self._schema = Schema.of(arrays)
        stale = time.monotonic() - self._refreshed_at > _REFRESH_EVERY
        if self._current is None or not self._current.filling or stale:
            self._current = self._pick_sender(Deadline(timeout))
        return self._current

    @contextmanager
    def fill(self, version: int = 0, timeout: float | None = None) -> Iterator[dict[str, np.ndarray]]:
        """Arrays of one item to fill in place."""
        deadline = Deadline(timeout)
        with self._pick_sender(deadline).fill(version, deadline.timeout) as arrays:
            yield arrays

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the receivers have everything."""
        deadline = Deadline(timeout)
        for sender in list(self._senders.values()):
            sender.flush(deadline.timeout)

    def close(self, timeout: float | None = 5.0) -> None:
        """Deliver what is left, and close."""
        deadline = Deadline(timeout)
        for address in list(self._senders):
            self._retire(address, timeout)
        for _, thread in self._retiring:
            thread.join(deadline.left() + 1.0)
        self._reap()

    def counts(self) -> dict[str, float]:
        """Sums over all senders, including those of receivers that left."""
        total = dict(self._retired_counts)
        for sender in [*self._senders.values(), *(sender for sender, _ in self._retiring)]:
            _add(total, sender.counts())
        return {**total, "receivers": len(self._senders)}

    def _pick_sender(self, deadline: Deadline) -> StreamSender:
        begun = time.monotonic()
        while True:
            self._context.stop.check()
            self._refresh()
            senders = list(self._senders.values())
            for sender in senders:
                sender.check()
            self._next += 1
            start = self._next % max(1, len(senders))
            rotated = senders[start:] + senders[:start]
            best = max(rotated, key=lambda sender: sender.free_frames, default=None)
            if best is not None and best.free_frames:
                best.waited += time.monotonic() - begun
                return best
            if deadline.passed:
                raise TimedOut(
                    f"none of the {len(senders)} receivers of {self._endpoint} took an item in time",
                    fix="are they running? See `callsheet status`",
                )
            if len(senders) == 1:
                senders[0].wait_for_room(deadline.left(_REFRESH_EVERY))
            else:
                self._context.sleep(deadline.left(_PAUSE))

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._refreshed_at < _REFRESH_EVERY:
            return
        self._refreshed_at = now
        wanted = [address for address in self._context.all(self._endpoint) if address]
        for address in [address for address in self._senders if address not in wanted]:
            self._retire(address, _DRAIN_TIMEOUT)
        for address in wanted:
            if address not in self._senders:
                sender = self._senders[address] = self._create(address, self._schema)
                sender.start()
        self._reap()

    def _retire(self, address: str, timeout: float | None) -> None:
        sender = self._senders.pop(address)
        if self._current is sender:
            self._current = None
        thread = threading.Thread(
            target=sender.close, args=(timeout,), name="callsheet-retiring", daemon=True
        )
        thread.start()
        self._retiring.append((sender, thread))

    def _reap(self) -> None:
        for sender, thread in list(self._retiring):
            if not thread.is_alive():
                _add(self._retired_counts, sender.counts())
                self._retiring.remove((sender, thread))


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + value
