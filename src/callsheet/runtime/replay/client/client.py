"""A program's way into a replay: insert, sample, change priorities, on however many shards there are."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.runtime import limits
from callsheet.runtime.context import Context
from callsheet.runtime.replay.client.inserter import Inserter, Receipt, as_priorities
from callsheet.runtime.replay.client.sampler import Sample, Sampler
from callsheet.runtime.schema import Schema

log = logging.getLogger("callsheet.runtime")
KEEP = 64 * 1024 * 1024


class ReplayClient:
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

    Items are dictionaries of arrays, all of the same names, types and shapes. When the endpoint has several replicas,
    items are spread over them and samples come from all of them in proportion to what they hold; one that is away is
    left out until it is back. `ahead` batches are asked for before they are needed, so a sample is there when it is
    wanted; its priorities are that much older.

    With ``durable=True`` items are kept here, up to `keep` bytes for each shard, until a snapshot has them, and are
    sent again to a shard that was started anew.
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
        """Which start of this process it is."""
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
        """Copy one item and send it. Without a priority it gets the largest so far, so that it is soon sampled."""
        return self._inserter.put(arrays, priority, timeout)

    def insert_many(
        self,
        arrays: Mapping[str, NDArray[np.generic]],
        priorities: object = None,
        timeout: float | None = None,
    ) -> None:
        """Copy and send many items, which lie along the first axis of each array: as they come from many environments
        at once, or from `cut`."""
        self._inserter.put_many(arrays, priorities, timeout)

    def flush(self, timeout: float | None = None, *, durable: bool = False) -> None:
        """Wait until the shards have all items; or, for a durable client, until a snapshot has them."""
        self._inserter.flush(timeout, durable=durable)

    def sample(
        self, timeout: float | None = None, out: Mapping[str, NDArray[np.generic]] | None = None
    ) -> Sample:
        """The next batch: into arrays of yours (`out`), or in read-only arrays that are good until the next call."""
        return self._require_sampler().sample(timeout, out)

    def update(self, keys: NDArray[np.uint64], priorities: object, timeout: float | None = None) -> None:
        """Change the priorities of items that were sampled. Those that are gone meanwhile are left alone."""
        found = np.asarray(keys)
        if found.dtype != np.uint64 or found.ndim != 1:
            raise UserError(
                f"keys are {found.dtype.name}{list(found.shape)}",
                fix="pass the keys of a sample, or some of them: uint64, along one axis",
            )
        self._require_sampler().update(found, as_priorities(priorities, len(found)), timeout)

    @property
    def size(self) -> int:
        """Items in the replay, as far as its shards have told."""
        return self._require_sampler().size

    @property
    def durable(self) -> dict[str, int]:
        """For each shard's address: how many of the items that were sent there a snapshot has."""
        return {address: sender.polled().durable for address, sender in self._inserter.senders.items()}

    @property
    def previous(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """The same for earlier starts of this process, by their incarnations."""
        return {address: sender.polled().previous for address, sender in self._inserter.senders.items()}

    def counts(self) -> dict[str, float]:
        """How it is going, in numbers."""
        found = {f"insert_{name}": value for name, value in self._inserter.counts().items()}
        if self._sampler is not None:
            shards = self._sampler.shards
            found |= {
                "sampled": self._sampler.sampled,
                "sample_waited": self._sampler.waited,
                "asked_again": self._sampler.retries,
                "dropped_updates": self._sampler.dropped_updates,
                "shards": len(shards),
                "shards_away": sum(not shard.up for shard in shards),
            }
        found["waited"] = found.get("insert_waited", 0.0) + found.get("sample_waited", 0.0)
        return found

    def close(self, timeout: float | None = 5.0) -> None:
        """Hand over what is left, also when the process was asked to stop, and end; what nobody takes is told."""
        senders = list(self._inserter.senders.values())
        self._inserter.close(timeout)
        dropped = int(self._inserter.counts().get("dropped", 0))
        # When both sides were asked to stop and the shards went first, nobody misses what was on its way.
        missed = self._durable or not (senders and all(sender.receiver_gone_first for sender in senders))
        if dropped and missed:
            log.warning("%s: %d items were dropped, no shard took them", self._endpoint, dropped)
        if self._sampler is not None:
            self._sampler.close()
        self._context.data_plane_metrics.untrack(self.counts)

    def __enter__(self) -> ReplayClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_sampler(self) -> Sampler:
        if self._sampler is None:
            raise UserError(
                f"this client of {self._endpoint} does not sample", fix="say ReplayClient(..., batch=256)"
            )
        return self._sampler
