"""Samples from a replay: requests batches ahead of time, from all shards at once.

Each shard contributes in proportion to its total weight. With one shard the arrays are views of its message, so
nothing is copied here; with several the parts are put together in reused arrays.
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
from callsheet.runtime.replay.client.shard import SampleReply, ShardClient
from callsheet.runtime.replay.config import KEY, PROBABILITY
from callsheet.runtime.replay.protocol import EPOCH_BITS, POSITION_BITS
from callsheet.runtime.stop import Deadline

SHARD_SHIFT = np.uint64(POSITION_BITS + EPOCH_BITS)
MAX_SHARDS = 1 << (64 - POSITION_BITS - EPOCH_BITS)
_REFRESH_EVERY = 1.0
"""Seconds between two checks of the list of shards."""
_PAUSE = 0.02


@dataclass(slots=True)
class Sample:
    """A batch of items, stacked along the first axis of each array. Valid until the next call of `sample`; copy what
    must stay."""

    arrays: dict[str, NDArray[np.generic]]
    keys: NDArray[np.uint64]
    """Identifies each item, to update its priority."""
    probabilities: NDArray[np.float64]
    """The probability of each item in a single draw."""
    size: int
    """Items in the replay at that time, in all shards."""

    def weights(self, beta: float) -> NDArray[np.float32]:
        """Importance weights: (size x probability) ** -beta, divided by the largest one of the batch."""
        weights = np.power(self.probabilities * max(1, self.size), -beta)
        weights /= weights.max()
        return weights.astype(np.float32)


@dataclass(slots=True)
class _ShardRequest:
    """Items of a batch that were requested from one shard."""

    shard: ShardClient
    count: int
    share: float
    """The probability that a draw goes to this shard."""
    number: int
    generation: int

    @property
    def lost(self) -> bool:
        """Whether the answer will never arrive."""
        return not self.shard.connected or self.generation != self.shard.generation


class Sampler:
    """Samples batches of one size."""

    def __init__(self, context: Context, endpoint: str, table: str, *, batch: int, ahead: int) -> None:
        batch = limits.integer("batch", batch, 1, protocol.MAX_SAMPLE_ITEMS)
        ahead = limits.integer("ahead", ahead, 0, limits.MAX_WINDOW)
        self._context = context
        self._endpoint = endpoint
        self._table = table
        self._batch = batch
        self._ahead = ahead
        self._shards: dict[str, ShardClient] = {}
        self._pending: deque[list[_ShardRequest]] = deque()
        self._current: tuple[ShardClient, SampleReply] | None = None
        """The reply whose arrays the caller has."""
        self._buffers: dict[str, NDArray[np.generic]] = {}
        self._keys = np.empty(batch, np.uint64)
        self._probabilities = np.empty(batch, np.float64)
        self._rng = np.random.default_rng()
        self._refreshed_at = -_REFRESH_EVERY
        self.sampled = 0
        self.waited = 0.0
        self.retries = 0
        """Requests to shards that went away before they answered."""
        self.dropped_updates = 0
        """Priorities for shards that were not connected."""

    @property
    def shards(self) -> list[ShardClient]:
        """The shards."""
        return list(self._shards.values())

    @property
    def size(self) -> int:
        """Items in all shards, as last reported."""
        return sum(shard.state.size for shard in self.shards)

    def sample(self, timeout: float | None, out: Mapping[str, NDArray[np.generic]] | None) -> Sample:
        """The next batch."""
        begun = time.monotonic()
        deadline = Deadline(timeout)
        requests = self._next_batch(deadline)
        self.waited += time.monotonic() - begun
        sample = self._assemble(requests, out)
        self.sampled += self._batch
        return sample

    def update(
        self, keys: NDArray[np.uint64], priorities: NDArray[np.float32], timeout: float | None
    ) -> None:
        """Send priorities to the shards that the keys came from."""
        if not len(keys):
            return
        deadline = Deadline(timeout)
        self._refresh_shards()
        shards = keys >> SHARD_SHIFT
        by_number = {shard.number: shard for shard in self._shards.values()}
        if (shards == shards[0]).all():
            self._update(by_number.get(int(shards[0])), keys, priorities, deadline)
            return
        for number in np.unique(shards):
            mine = shards == number
            self._update(by_number.get(int(number)), keys[mine], priorities[mine], deadline)

    def _update(
        self,
        shard: ShardClient | None,
        keys: NDArray[np.uint64],
        priorities: NDArray[np.float32],
        deadline: Deadline,
    ) -> None:
        if shard is not None and not shard.generation:  # never connected yet
            shard.link.connect(deadline.timeout)
        for at in range(0, len(keys), protocol.MAX_UPDATES):
            part = slice(at, at + protocol.MAX_UPDATES)
            if shard is None or not shard.update(keys[part], priorities[part], deadline):
                self.dropped_updates += len(keys[part])

    def close(self) -> None:
        """Close all connections."""
        self._release_current()
        self._pending.clear()
        for shard in self.shards:
            shard.close()
        self._shards.clear()

    def _release_current(self) -> None:
        if self._current is not None:
            self._current[1].frame.release()
            self._current = None

    def _next_batch(self, deadline: Deadline) -> list[_ShardRequest]:
        """Wait for the next batch's requests to be answered, requesting further batches meanwhile."""
        while True:
            self._refresh_shards()
            for shard in self.shards:
                shard.link.check_connection()
            self._request_missing()
            if self._pending:
                missing = [request for request in self._pending[0] if not request.shard.ready(request.number)]
                if not missing:
                    return self._pending[0]
                coming = [request for request in missing if not request.lost]
                if coming:
                    self._wait(coming[0].shard, deadline)
                    continue
            self._wait_for_shard(deadline)

    def _wait(self, shard: ShardClient, deadline: Deadline) -> None:
        try:
            shard.link.wait(deadline)
        except TimedOut as error:
            why = shard.state.waiting
            raise (TimedOut(f"{error.message}: {why}", fix=error.fix) if why else error) from None

    def _wait_for_shard(self, deadline: Deadline) -> None:
        """No shard is connected: wait for any."""
        if len(self._shards) == 1:
            self.shards[0].link.wait(deadline)
            return
        if deadline.passed:
            raise TimedOut(
                f"none of the {len(self._shards)} shards of {self._endpoint} answers",
                fix="are they running? See `callsheet status`",
            )
        self._context.sleep(deadline.left(_PAUSE))

    def _refresh_shards(self) -> None:
        """Follow the list of shards, and connect to those that are not connected."""
        now = time.monotonic()
        if now - self._refreshed_at > _REFRESH_EVERY:
            self._refreshed_at = now
            wanted = [address for address in self._context.all(self._endpoint) if address]
            if len(wanted) > MAX_SHARDS:
                raise UserError(f"{self._endpoint} has {len(wanted)} shards", fix=f"use at most {MAX_SHARDS}")
            for address in [address for address in self._shards if address not in wanted]:
                self._shards.pop(address).close()
            for number, address in enumerate(wanted):
                if address not in self._shards:
                    shard = ShardClient(self._context, self._endpoint, self._table, address, number)
                    self._shards[address] = shard
        for shard in self.shards:
            if not shard.connected:
                shard.link.try_connect(0.0)

    def _request_missing(self) -> None:
        """Request what is missing: batches up to the configured number, and parts whose shard went away."""
        usable = [shard for shard in self.shards if shard.connected]
        if not usable:
            return
        for batch in self._pending:
            lost = [request for request in batch if request.lost and not request.shard.ready(request.number)]
            for request in lost:
                batch.remove(request)
                self.retries += 1
                batch += self._request(usable, request.count)
        ahead = min(self._ahead, min(shard.window for shard in usable) - 1)
        while len(self._pending) < ahead + 1:
            self._pending.append(self._request(usable, self._batch))

    def _request(self, usable: list[ShardClient], count: int) -> list[_ShardRequest]:
        """Draw how many items come from each shard, and request them."""
        pool = [shard for shard in usable if shard.state.sampling_open and shard.state.total_weight > 0]
        pool = pool or usable
        first = pool[0].state
        if first.queue and 0 < first.capacity < count:
            raise UserError(
                f"a batch of {count:,} items from a queue of {first.capacity:,}", fix="make the queue larger"
            )
        if len(pool) == 1:
            done, self._current = self._current, None
            return [_request_from(pool[0], count, 1.0, done)]
        self._release_current()
        weights = np.array([shard.state.total_weight for shard in pool])
        shares = weights / weights.sum() if weights.sum() > 0 else np.full(len(pool), 1.0 / len(pool))
        counts = self._rng.multinomial(count, shares)
        return [
            _request_from(shard, int(part), float(share))
            for shard, part, share in zip(pool, counts, shares, strict=True)
            if part
        ]

    def _assemble(
        self, requests: list[_ShardRequest], out: Mapping[str, NDArray[np.generic]] | None
    ) -> Sample:
        into = {} if len(requests) == 1 and out is None else self._output_arrays(requests, out)
        self._pending.popleft()
        replies = [request.shard.replies.pop(request.number) for request in requests]
        size = self.size
        if len(requests) == 1 and out is None:
            arrays, shard = replies[0].arrays, np.uint64(requests[0].shard.number)
            self._current = (requests[0].shard, replies[0])
            keys, probabilities = arrays.pop(KEY), arrays.pop(PROBABILITY)
            return Sample(arrays, keys | shard << SHARD_SHIFT, probabilities, size)  # type: ignore[operator, arg-type]
        row = 0
        for request, reply in zip(requests, replies, strict=True):
            arrays = reply.arrays
            rows = slice(row, row + request.count)
            for name, array in into.items():
                array[rows] = arrays[name]
            self._keys[rows] = arrays[KEY]
            self._keys[rows] |= np.uint64(request.shard.number) << SHARD_SHIFT
            np.multiply(arrays[PROBABILITY], request.share, out=self._probabilities[rows])
            row += request.count
            arrays.clear()
            if len(requests) > 1:
                reply.frame.release()
        if len(requests) == 1:
            self._current = (requests[0].shard, replies[0])
        return Sample(into, self._keys, self._probabilities, size)

    def _output_arrays(
        self, requests: list[_ShardRequest], out: Mapping[str, NDArray[np.generic]] | None
    ) -> dict[str, NDArray[np.generic]]:
        """Arrays for a batch: the caller's, if they fit, or our own."""
        schema = requests[0].shard.item_schema
        assert schema is not None, "a shard that answered has sent its schema"
        for request in requests:
            if request.shard.item_schema != schema and request.shard.item_schema is not None:
                raise UserError(
                    f"shards of {self._endpoint} have different items: {schema.difference(request.shard.item_schema)}",
                    fix="make all writers send the same arrays",
                )
        layout = schema.layout(self._batch)
        if out is None:
            if not self._buffers:
                self._buffers = {name: np.empty(shape, dtype) for name, dtype, shape, _ in layout.places}
            return self._buffers
        for name, dtype, shape, _ in layout.places:
            array = out.get(name)
            if array is None or array.shape != shape or array.dtype != dtype:
                actual = "missing" if array is None else f"{array.dtype.name}{list(array.shape)}"
                raise UserError(f"out[{name!r}] is {actual}", fix=f"it must be {dtype.name}{list(shape)}")
        return dict(out)


def _request_from(
    shard: ShardClient, count: int, share: float, done: tuple[ShardClient, SampleReply] | None = None
) -> _ShardRequest:
    if done is not None and done[0] is not shard:
        done[1].frame.release()
        done = None
    number = shard.request(count, done[1] if done else None)
    # A request that could not be sent counts as lost, and is sent again next time.
    return _ShardRequest(shard, count, share, number or 0, shard.generation if number else -1)
