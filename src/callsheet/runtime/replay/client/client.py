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
from callsheet.runtime.replay.client.inserter import Inserting, Receipt, checked_many
from callsheet.runtime.replay.client.sampler import Sample, Sampling
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
        self._inserting = Inserting(
            context, endpoint, table, schema, window=window, keep=keep if durable else None
        )
        self._sampling: Sampling | None = None
        if batch is not None:
            self._sampling = Sampling(context, endpoint, table, batch=batch, ahead=ahead)
        context.measuring.follow("ReplayClient", endpoint, self.counts)

    def insert(
        self, arrays: Mapping[str, object], priority: float | None = None, timeout: float | None = None
    ) -> Receipt:
        """Copy one item and send it. Without a priority it gets the largest so far, so that it is soon sampled."""
        return self._inserting.put(arrays, priority, timeout)

    def insert_many(
        self,
        arrays: Mapping[str, NDArray[np.generic]],
        priorities: object = None,
        timeout: float | None = None,
    ) -> None:
        """Copy and send many items, which lie along the first axis of each array: as they come from many environments
        at once, or from `cut`."""
        self._inserting.put_many(arrays, priorities, timeout)

    def flush(self, timeout: float | None = None, *, durable: bool = False) -> None:
        """Wait until the shards have all items; or, for a durable client, until a snapshot has them."""
        self._inserting.flush(timeout, durable=durable)

    def sample(
        self, timeout: float | None = None, out: Mapping[str, NDArray[np.generic]] | None = None
    ) -> Sample:
        """The next batch: into arrays of yours (`out`), or in read-only arrays that are good until the next call."""
        return self._the_sampling().sample(timeout, out)

    def update(self, keys: NDArray[np.uint64], priorities: object, timeout: float | None = None) -> None:
        """Change the priorities of items that were sampled. Those that are gone meanwhile are left alone."""
        found = np.asarray(keys)
        if found.dtype != np.uint64 or found.ndim != 1:
            raise UserError(
                f"keys are {found.dtype.name}{list(found.shape)}",
                fix="pass the keys of a sample, or some of them: uint64, along one axis",
            )
        self._the_sampling().update(found, checked_many(priorities, len(found)), timeout)

    @property
    def size(self) -> int:
        """Items in the replay, as far as its shards have told."""
        return self._the_sampling().size

    @property
    def durable(self) -> dict[str, int]:
        """For each shard's address: how many of the items that were sent there a snapshot has."""
        return {address: lane.heard().durable for address, lane in self._inserting.lanes.items()}

    @property
    def previous(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """The same for earlier starts of this process, by their incarnations."""
        return {address: lane.heard().previous for address, lane in self._inserting.lanes.items()}

    def counts(self) -> dict[str, float]:
        """How it is going, in numbers."""
        found = {f"insert_{name}": value for name, value in self._inserting.counts().items()}
        if self._sampling is not None:
            sources = self._sampling.sources
            found |= {
                "sampled": self._sampling.sampled,
                "sample_waited": self._sampling.waited,
                "asked_again": self._sampling.asked_again,
                "dropped_updates": self._sampling.dropped_updates,
                "shards": len(sources),
                "shards_away": sum(not source.up for source in sources),
            }
        found["waited"] = found.get("insert_waited", 0.0) + found.get("sample_waited", 0.0)
        return found

    def close(self, timeout: float | None = 5.0) -> None:
        """Hand over what is left, also when the process was asked to stop, and end; what nobody takes is told."""
        lanes = list(self._inserting.lanes.values())
        self._inserting.close(timeout)
        dropped = int(self._inserting.counts().get("dropped", 0))
        # When both sides were asked to stop and the shards went first, nobody misses what was on its way.
        missed = self._durable or not (lanes and all(lane.left_alone for lane in lanes))
        if dropped and missed:
            log.warning("%s: %d items were dropped, no shard took them", self._endpoint, dropped)
        if self._sampling is not None:
            self._sampling.close()
        self._context.measuring.ended(self.counts)

    def __enter__(self) -> ReplayClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _the_sampling(self) -> Sampling:
        if self._sampling is None:
            raise UserError(
                f"this client of {self._endpoint} does not sample", fix="say ReplayClient(..., batch=256)"
            )
        return self._sampling
