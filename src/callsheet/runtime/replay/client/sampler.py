"""The learner's end of a replay: batches are asked for ahead of their use, from all shards at once.

A batch is drawn from each shard in proportion to what it holds. With one shard its arrays are views onto the shard's
own message, so nothing is copied here; with several the pieces are put together in arrays that are used again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Context
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.replay import protocol
from callsheet.runtime.replay.client.shard import Reply, Source
from callsheet.runtime.replay.config import KEY, PROBABILITY
from callsheet.runtime.replay.protocol import LIFE_BITS, POSITION_BITS
from callsheet.runtime.stop import Deadline

SHARD_SHIFT = np.uint64(POSITION_BITS + LIFE_BITS)
MOST_SHARDS = 1 << (64 - POSITION_BITS - LIFE_BITS)
_LOOK = 1.0
"""Seconds between two looks at the list of shards."""
_PAUSE = 0.02


@dataclass(slots=True)
class Sample:
    """Items along the first axis of each array. It is valid until the next call of `sample`; copy what must stay."""

    arrays: dict[str, NDArray[np.generic]]
    keys: NDArray[np.uint64]
    """Names each item, to change its priority."""
    probabilities: NDArray[np.float64]
    """The chance that each draw had to be this item."""
    size: int
    """Items in the replay at that time, all shards together."""

    def weights(self, beta: float) -> NDArray[np.float32]:
        """Importance weights: (size x probability) to the power of -beta, divided by the largest of the batch."""
        weights = np.power(self.probabilities * max(1, self.size), -beta)
        weights /= weights.max()
        return weights.astype(np.float32)


@dataclass(slots=True)
class _Part:
    """Items of a batch that one shard was asked for."""

    source: Source
    count: int
    share: float
    """The chance with which a draw went to this shard."""
    number: int
    resets: int

    @property
    def lost(self) -> bool:
        """Whether the answer will never come."""
        return not self.source.up or self.resets != self.source.resets


class Sampling:
    """Batches of one size."""

    def __init__(self, context: Context, endpoint: str, table: str, *, batch: int, ahead: int) -> None:
        batch = limits.integer("batch", batch, 1, protocol.MOST_SAMPLED)
        ahead = limits.integer("ahead", ahead, 0, limits.MAX_WINDOW)
        self._context = context
        self._endpoint = endpoint
        self._table = table
        self._batch = batch
        self._ahead = ahead
        self._sources: dict[str, Source] = {}
        self._plans: deque[list[_Part]] = deque()
        self._held: tuple[Source, Reply] | None = None
        """The reply whose arrays the caller has."""
        self._own: dict[str, NDArray[np.generic]] = {}
        self._keys = np.empty(batch, np.uint64)
        self._chances = np.empty(batch, np.float64)
        self._rng = np.random.default_rng()
        self._looked = -_LOOK
        self.sampled = 0
        self.waited = 0.0
        self.asked_again = 0
        """Requests to shards that went away before they answered."""
        self.dropped_updates = 0
        """Priorities for shards that were not there."""

    @property
    def sources(self) -> list[Source]:
        """The shards."""
        return list(self._sources.values())

    @property
    def size(self) -> int:
        """Items in all shards, as far as they have told."""
        return sum(source.state.size for source in self.sources)

    def sample(self, timeout: float | None, out: Mapping[str, NDArray[np.generic]] | None) -> Sample:
        """The next batch."""
        begun = time.monotonic()
        deadline = Deadline(timeout)
        parts = self._arrived(deadline)
        self.waited += time.monotonic() - begun
        found = self._assemble(parts, out)
        self.sampled += self._batch
        return found

    def update(
        self, keys: NDArray[np.uint64], priorities: NDArray[np.float32], timeout: float | None
    ) -> None:
        """Send priorities to the shards that gave the keys."""
        if not len(keys):
            return
        deadline = Deadline(timeout)
        self._follow()
        shards = keys >> SHARD_SHIFT
        by_number = {source.number: source for source in self._sources.values()}
        if (shards == shards[0]).all():
            self._update(by_number.get(int(shards[0])), keys, priorities, deadline)
            return
        for number in np.unique(shards):
            mine = shards == number
            self._update(by_number.get(int(number)), keys[mine], priorities[mine], deadline)

    def _update(
        self,
        source: Source | None,
        keys: NDArray[np.uint64],
        priorities: NDArray[np.float32],
        deadline: Deadline,
    ) -> None:
        if source is not None and not source.resets:  # never seen yet
            source.link.connect(deadline.timeout)
        for at in range(0, len(keys), protocol.MOST_UPDATED):
            part = slice(at, at + protocol.MOST_UPDATED)
            if source is None or not source.update(keys[part], priorities[part], deadline):
                self.dropped_updates += len(keys[part])

    def close(self) -> None:
        """End all connections."""
        self._give_back()
        self._plans.clear()
        for source in self.sources:
            source.close()
        self._sources.clear()

    def _give_back(self) -> None:
        if self._held is not None:
            self._held[1].frame.release()
            self._held = None

    def _arrived(self, deadline: Deadline) -> list[_Part]:
        """The parts of the next batch, once all of them are there; others are asked for meanwhile."""
        while True:
            self._follow()
            for source in self.sources:
                source.link.check_connection()
            self._plan()
            if self._plans:
                missing = [part for part in self._plans[0] if not part.source.ready(part.number)]
                if not missing:
                    return self._plans[0]
                coming = [part for part in missing if not part.lost]
                if coming:
                    self._wait(coming[0].source, deadline)
                    continue
            self._await_shard(deadline)

    def _wait(self, source: Source, deadline: Deadline) -> None:
        try:
            source.link.wait(deadline)
        except TimedOut as error:
            why = source.state.waiting
            raise (TimedOut(f"{error.message}: {why}", fix=error.fix) if why else error) from None

    def _await_shard(self, deadline: Deadline) -> None:
        """Nobody is there to be asked: wait for anyone."""
        if len(self._sources) == 1:
            self.sources[0].link.wait(deadline)
            return
        if deadline.passed:
            raise TimedOut(
                f"none of the {len(self._sources)} shards of {self._endpoint} answers",
                fix="are they running? See `callsheet status`",
            )
        self._context.sleep(deadline.left(_PAUSE))

    def _follow(self) -> None:
        """Know the shards that there are, and connect to those that are not connected."""
        now = time.monotonic()
        if now - self._looked > _LOOK:
            self._looked = now
            wanted = [one for one in self._context.all(self._endpoint) if one]
            if len(wanted) > MOST_SHARDS:
                raise UserError(
                    f"{self._endpoint} has {len(wanted)} shards", fix=f"at most {MOST_SHARDS} are possible"
                )
            for address in [one for one in self._sources if one not in wanted]:
                self._sources.pop(address).close()
            for number, address in enumerate(wanted):
                if address not in self._sources:
                    source = Source(self._context, self._endpoint, self._table, address, number)
                    self._sources[address] = source
        for source in self.sources:
            if not source.up:
                source.link.try_connect(0.0)

    def _plan(self) -> None:
        """Ask for what is missing: batches up to the wanted number, and parts whose shard went away."""
        usable = [source for source in self.sources if source.up]
        if not usable:
            return
        for plan in self._plans:
            lost = [part for part in plan if part.lost and not part.source.ready(part.number)]
            for part in lost:
                plan.remove(part)
                self.asked_again += 1
                plan += self._ask(usable, part.count)
        ahead = min(self._ahead, min(source.window for source in usable) - 1)
        while len(self._plans) < ahead + 1:
            self._plans.append(self._ask(usable, self._batch))

    def _ask(self, usable: list[Source], count: int) -> list[_Part]:
        """Draw how many items come from which shard, and ask for them."""
        pool = [source for source in usable if source.state.open and source.state.mass > 0] or usable
        first = pool[0].state
        if first.queue and 0 < first.capacity < count:
            raise UserError(
                f"a batch of {count:,} items from a queue of {first.capacity:,}", fix="make the queue larger"
            )
        if len(pool) == 1:
            done, self._held = self._held, None
            return [_part(pool[0], count, 1.0, done)]
        self._give_back()
        masses = np.array([source.state.mass for source in pool])
        shares = masses / masses.sum() if masses.sum() > 0 else np.full(len(pool), 1.0 / len(pool))
        counts = self._rng.multinomial(count, shares)
        return [
            _part(source, int(some), float(share))
            for source, some, share in zip(pool, counts, shares, strict=True)
            if some
        ]

    def _assemble(self, parts: list[_Part], out: Mapping[str, NDArray[np.generic]] | None) -> Sample:
        into = {} if len(parts) == 1 and out is None else self._into(parts, out)
        self._plans.popleft()
        replies = [part.source.replies.pop(part.number) for part in parts]
        size = self.size
        if len(parts) == 1 and out is None:
            arrays, shard = replies[0].arrays, np.uint64(parts[0].source.number)
            self._held = (parts[0].source, replies[0])
            keys, chances = arrays.pop(KEY), arrays.pop(PROBABILITY)
            return Sample(arrays, keys | shard << SHARD_SHIFT, chances, size)  # type: ignore[operator, arg-type]
        row = 0
        for part, reply in zip(parts, replies, strict=True):
            arrays = reply.arrays
            rows = slice(row, row + part.count)
            for name, array in into.items():
                array[rows] = arrays[name]
            self._keys[rows] = arrays[KEY]
            self._keys[rows] |= np.uint64(part.source.number) << SHARD_SHIFT
            np.multiply(arrays[PROBABILITY], part.share, out=self._chances[rows])
            row += part.count
            arrays.clear()
            if len(parts) > 1:
                reply.frame.release()
        if len(parts) == 1:
            self._held = (parts[0].source, replies[0])
        return Sample(into, self._keys, self._chances, size)

    def _into(
        self, parts: list[_Part], out: Mapping[str, NDArray[np.generic]] | None
    ) -> dict[str, NDArray[np.generic]]:
        """Arrays for a batch: the caller's, if they fit, or our own."""
        schema = parts[0].source.items
        assert schema is not None, "a shard that answered has told what its items look like"
        for part in parts:
            if part.source.items != schema and part.source.items is not None:
                raise UserError(
                    f"shards of {self._endpoint} have different items: {schema.difference(part.source.items)}",
                    fix="let all writers send the same",
                )
        layout = schema.layout(self._batch)
        if out is None:
            if not self._own:
                self._own = {name: np.empty(shape, dtype) for name, dtype, shape, _ in layout.places}
            return self._own
        for name, dtype, shape, _ in layout.places:
            array = out.get(name)
            if array is None or array.shape != shape or array.dtype != dtype:
                found = "missing" if array is None else f"{array.dtype.name}{list(array.shape)}"
                raise UserError(f"out[{name!r}] is {found}", fix=f"it must be {dtype.name}{list(shape)}")
        return dict(out)


def _part(source: Source, count: int, share: float, done: tuple[Source, Reply] | None = None) -> _Part:
    if done is not None and done[0] is not source:
        done[1].frame.release()
        done = None
    number = source.ask(count, done[1] if done else None)
    # What could not be asked counts as lost, and is asked for again with the next look.
    return _Part(source, count, share, number or 0, source.resets if number else -1)
