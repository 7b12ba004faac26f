"""The replay client: insert, sample, and update priorities, on any number of shards."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Closeable, Context
from callsheet.runtime.replay.client.inserter import Inserter, Receipt, as_priorities
from callsheet.runtime.replay.client.sampler import Sample, Sampler
from callsheet.runtime.schema import Schema

log = logging.getLogger("callsheet.runtime")
KEEP = 64 * 1024 * 1024


class ReplayClient(Closeable):
    """Inserts into a replay's table and samples from it.

    An actor::

        with Context.from_env() as ctx, ReplayClient(ctx, "replay") as replay:
            while True:
                replay.insert({"observation": o, "action": a, "reward": r, "next": n, "done": d})

    A learner::

        with Context.from_env() as ctx, ReplayClient(ctx, "replay", batch=256) as replay:
            while True:
                sample = replay.sample()
                errors = learn(sample.arrays, sample.weights(beta=0.4))
                replay.update(sample.keys, np.abs(errors))

    Items are dictionaries of arrays with fixed names, types and shapes. If the endpoint has several replicas (shards),
    items are balanced over them, and samples come from all of them in proportion to what they hold; a shard that is away
    is skipped until it is back. `ahead` batches are requested before they are needed, so `sample` rarely waits; their
    priorities are that much older.

    With ``durable=True``, items are kept here (up to `keep` bytes per shard) until a snapshot has them, and resent to a
    restarted shard.
    """

    def __init__(
        self,
        context: Context,
        endpoint: str,
        *,
        table: str = "replay",
        schema: Schema | None = None,
        batch: int | None = None,
        ahead: int = 2,
        window: int = 8,
        durable: bool = False,
        keep: int = KEEP,
    ) -> None:
        window, keep = limits.window(window), limits.integer("keep", keep, 1)
        self.incarnation = context.incarnation
        """The incarnation of this process."""
        self._context = context
        self._endpoint = endpoint
        self._durable = durable
        self._inserter = Inserter(
            context, endpoint, table, schema, window=window, keep=keep if durable else None
        )
        self._sampler: Sampler | None = None
        if batch is not None:
            self._sampler = Sampler(context, endpoint, table, batch=batch, ahead=ahead)
        context.data_plane_metrics.track("ReplayClient", endpoint, self.counts)

    def insert(
        self, arrays: Mapping[str, object], priority: float | None = None, timeout: float | None = None
    ) -> Receipt:
        """Copy and send one item. Without a priority it gets the largest so far, so that it is sampled soon."""
        return self._inserter.put(arrays, priority, timeout)

    def insert_many(
        self,
        arrays: Mapping[str, NDArray[np.generic]],
        priorities: object = None,
        timeout: float | None = None,
    ) -> None:
        """Copy and send many items, stacked along the first axis of each array, for example from many environments or
        from `cut`."""
        self._inserter.put_many(arrays, priorities, timeout)

    def flush(self, timeout: float | None = None, *, durable: bool = False) -> None:
        """Wait until the shards have all items or, for a durable client, until a snapshot has them."""
        self._inserter.flush(timeout, durable=durable)

    def sample(
        self, timeout: float | None = None, out: Mapping[str, NDArray[np.generic]] | None = None
    ) -> Sample:
        """The next batch, in your own arrays (`out`) or in read-only arrays that are valid until the next call."""
        return self._require_sampler().sample(timeout, out)

    def update(self, keys: NDArray[np.uint64], priorities: object, timeout: float | None = None) -> None:
        """Update the priorities of sampled items. Items that were evicted meanwhile are ignored."""
        key_array = np.asarray(keys)
        if key_array.dtype != np.uint64 or key_array.ndim != 1:
            raise UserError(
                f"keys are {key_array.dtype.name}{list(key_array.shape)}",
                fix="pass keys of a sample: one-dimensional, uint64",
            )
        self._require_sampler().update(key_array, as_priorities(priorities, len(key_array)), timeout)

    @property
    def size(self) -> int:
        """Items in the replay, as last reported by its shards."""
        return self._require_sampler().size

    @property
    def durable(self) -> dict[str, int]:
        """For each shard's address: how many of the items sent there are in a snapshot."""
        return {address: sender.polled().durable for address, sender in self._inserter.senders.items()}

    @property
    def previous(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """The same for earlier incarnations of this process: (incarnation, sequence) each."""
        return {address: sender.polled().previous for address, sender in self._inserter.senders.items()}

    def counts(self) -> dict[str, float]:
        """Counters for the metrics."""
        counters = {f"insert_{name}": value for name, value in self._inserter.counts().items()}
        if self._sampler is not None:
            shards = self._sampler.shards
            counters |= {
                "sampled": self._sampler.sampled,
                "sample_waited": self._sampler.waited,
                "asked_again": self._sampler.retries,
                "dropped_updates": self._sampler.dropped_updates,
                "shards": len(shards),
                "shards_away": sum(not shard.connected for shard in shards),
            }
        counters["waited"] = counters.get("insert_waited", 0.0) + counters.get("sample_waited", 0.0)
        return counters

    def close(self, timeout: float | None = 5.0) -> None:
        """Deliver what is left, even if the process was asked to stop, and close; logs what was dropped."""
        senders = list(self._inserter.senders.values())
        self._inserter.close(timeout)
        dropped = int(self._inserter.counts().get("dropped", 0))
        # If both sides stop and the shards went first, nobody misses what was in flight.
        missed = self._durable or not (senders and all(sender.receiver_gone_first for sender in senders))
        if dropped and missed:
            log.warning("%s: %d items were dropped because no shard took them", self._endpoint, dropped)
        if self._sampler is not None:
            self._sampler.close()
        self._context.data_plane_metrics.untrack(self.counts)

    def _require_sampler(self) -> Sampler:
        if self._sampler is None:
            raise UserError(
                f"this client of {self._endpoint} does not sample",
                fix="pass a batch size: ReplayClient(..., batch=256)",
            )
        return self._sampler
