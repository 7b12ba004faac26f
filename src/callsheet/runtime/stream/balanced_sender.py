"""Items distributed over all receivers of an endpoint, which come and go."""

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
from callsheet.runtime.stream.sender import Lane

_LOOK = 1.0
"""Seconds between two looks at the list of receivers."""
_LEAVE = 10.0
"""Seconds that a receiver which left the list has to take what is on its way to it."""
_PAUSE = 0.001


class Spread:
    """A lane to each receiver; the next frame goes to the one that has the most room, in turn among equals."""

    def __init__(
        self,
        context: Context,
        endpoint: str,
        schema: Schema | None,
        make: Callable[[str, Schema | None], Lane],
    ) -> None:
        self._context = context
        self._endpoint = endpoint
        self._schema = schema
        self._make = make
        """Makes the lane to an address."""
        self._lanes: dict[str, Lane] = {}
        self._left: list[tuple[Lane, threading.Thread]] = []
        self._past: dict[str, float] = {}
        self._looked = 0.0
        self._current: Lane | None = None
        self._turn = 0

    @property
    def lanes(self) -> dict[str, Lane]:
        """To the receivers now, by their addresses."""
        return self._lanes

    @property
    def current(self) -> Lane | None:
        """Where the last item went."""
        return self._current

    def connect(self, timeout: float | None = None) -> None:
        """Have a connection to one of them at least."""
        self._pick(Deadline(timeout))

    def put(self, arrays: Mapping[str, object], version: int = 0, timeout: float | None = None) -> int:
        """Take one item; waits while all receivers have enough. Its sequence on its lane."""
        deadline = Deadline(timeout)
        return self.choose(arrays, timeout).put(arrays, version, deadline.timeout)

    def choose(self, arrays: Mapping[str, object], timeout: float | None = None) -> Lane:
        """The lane for the next item, which looks like this: the one whose frame is being filled, or one with room."""
        if self._schema is None:
            self._schema = Schema.of(arrays)
        if self._current is None or not self._current.filling or time.monotonic() - self._looked > _LOOK:
            self._current = self._pick(Deadline(timeout))
        return self._current

    @contextmanager
    def fill(self, version: int = 0, timeout: float | None = None) -> Iterator[dict[str, np.ndarray]]:
        """Arrays of one item to be filled in place."""
        deadline = Deadline(timeout)
        with self._pick(deadline).fill(version, deadline.timeout) as arrays:
            yield arrays

    def flush(self, timeout: float | None = None) -> None:
        """Wait until the receivers have all that was put in."""
        deadline = Deadline(timeout)
        for lane in list(self._lanes.values()):
            lane.flush(deadline.timeout)

    def close(self, timeout: float | None = 5.0) -> None:
        """Hand over what is left, and end."""
        deadline = Deadline(timeout)
        for address in list(self._lanes):
            self._leave(address, timeout)
        for _, thread in self._left:
            thread.join(deadline.left() + 1.0)
        self._tidy()

    def counts(self) -> dict[str, float]:
        """The sums over all lanes, those of receivers that left included."""
        total = dict(self._past)
        for lane in [*self._lanes.values(), *(lane for lane, _ in self._left)]:
            _add(total, lane.counts())
        return {**total, "receivers": len(self._lanes)}

    def _pick(self, deadline: Deadline) -> Lane:
        begun = time.monotonic()
        while True:
            self._context.stop.check()
            self._follow()
            lanes = list(self._lanes.values())
            for lane in lanes:
                lane.check()
            self._turn += 1
            turned = lanes[self._turn % len(lanes) :] + lanes[: self._turn % len(lanes)] if lanes else []
            best = max(turned, key=lambda lane: lane.free, default=None)
            if best is not None and best.free:
                best.waited += time.monotonic() - begun
                return best
            if deadline.passed:
                raise TimedOut(
                    f"none of the {len(lanes)} receivers of {self._endpoint} took an item in time",
                    fix="are they running? See `callsheet status`",
                )
            if len(lanes) == 1:
                lanes[0].await_room(deadline.left(_LOOK))
            else:
                self._context.sleep(deadline.left(_PAUSE))

    def _follow(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        wanted = [one for one in self._context.all(self._endpoint) if one]
        for address in [one for one in self._lanes if one not in wanted]:
            self._leave(address, _LEAVE)
        for address in wanted:
            if address not in self._lanes:
                lane = self._lanes[address] = self._make(address, self._schema)
                lane.start()
        self._tidy()

    def _leave(self, address: str, timeout: float | None) -> None:
        lane = self._lanes.pop(address)
        if self._current is lane:
            self._current = None
        thread = threading.Thread(target=lane.close, args=(timeout,), name="callsheet-leaving", daemon=True)
        thread.start()
        self._left.append((lane, thread))

    def _tidy(self) -> None:
        for lane, thread in list(self._left):
            if not thread.is_alive():
                _add(self._past, lane.counts())
                self._left.remove((lane, thread))


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0.0) + value
