"""A table's configuration, checked before anything is allocated, and the schemas derived from its items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from callsheet.errors import UserError, did_you_mean
from callsheet.runtime import limits
from callsheet.runtime.limits import memory_limit
from callsheet.runtime.replay.server.rate_limiter import RateLimiter
from callsheet.runtime.schema import Field, Schema

Kind = Literal["uniform", "prioritized", "fifo"]
KEY: Final = "replay.key"
PROBABILITY: Final = "replay.probability"
PRIORITY: Final = "replay.priority"
_KEY = Field(KEY, np.dtype("<u8"), ())
_PROBABILITY = Field(PROBABILITY, np.dtype("<f8"), ())
_PRIORITY = Field(PRIORITY, np.dtype("<f4"), ())


@dataclass(frozen=True)
class Table:
    """Configuration of one table of a replay server."""

    name: str = "replay"
    kind: Kind = "uniform"
    """`uniform`: all items are equally likely; `prioritized`: by priority; `fifo`: a queue, each item once."""
    items: int = 1_000_000
    """Capacity in items. When full, the oldest are evicted; in a queue, inserts wait."""
    bytes: int | None = None
    """Capacity in bytes of items, if that is less."""
    schema: Schema | None = None
    """The items' schema; None to take that of the first item."""
    alpha: float = 0.6
    """Priority exponent: 0 ignores priorities, 1 samples in proportion to them."""
    min_size: int = 1
    """Items required before sampling starts."""
    samples_per_insert: float | None = None
    """How often each item is sampled on average; the side that is ahead waits. None for no limit."""
    tolerance: float | None = None
    """How many samples the two sides may differ; None for 10 % of `min_size` x `samples_per_insert`, but at least the
    samples for one insert."""
    seed: int | None = None
    """Random seed, for reproducible samples."""

    def __post_init__(self) -> None:
        kinds = get_args(Kind)
        if self.kind not in kinds:
            fix = did_you_mean(str(self.kind), kinds, f"choose one of {', '.join(kinds)}")
            raise UserError(f"unknown kind of table: {self.kind!r}", fix=fix)
        if not 0 < len(self.name) <= 128:
            raise UserError(f"a table's name has 1 to 128 characters, not {len(self.name)}", fix="shorten it")
        limits.integer(f"items of table {self.name!r}", self.items, 1)
        limits.integer(f"min_size of table {self.name!r}", self.min_size, 1)
        if self.bytes is not None:
            limits.integer(f"bytes of table {self.name!r}", self.bytes, 1)
        if self.seed is not None:
            limits.integer(f"seed of table {self.name!r}", self.seed, 0)
        if not 0 <= self.alpha <= 10:
            raise UserError(f"alpha {self.alpha} is out of bounds", fix="choose a number from 0 to 10")
        if self.min_size > self.items:
            raise UserError(
                f"table {self.name!r} holds {self.items} items but is sampled only from {self.min_size} items on",
                fix="decrease min_size or enlarge the table",
            )
        self.limiter()
        if self.schema is not None:
            self.capacity(self.schema)

    def limiter(self) -> RateLimiter:
        """A fresh rate limiter."""
        ratio = self.samples_per_insert
        if ratio is None:
            return RateLimiter(self.min_size)
        usual = max(ratio, 0.1 * ratio * self.min_size)
        return RateLimiter(self.min_size, ratio, usual if self.tolerance is None else self.tolerance)

    def capacity(self, schema: Schema) -> int:
        """How many items of this schema the table can hold."""
        if not schema.fixed:
            raise UserError(
                f"items of table {self.name!r} have axes of variable length: {schema}",
                fix="cut them to one length, see callsheet.runtime.replay.cut",
            )
        taken = {KEY, PROBABILITY, PRIORITY} & set(schema.names)
        if taken:
            raise UserError(f"{taken.pop()!r} is a reserved array name", fix="choose another name")
        size = schema.item_bytes
        room = self.items if self.bytes is None or not size else min(self.items, self.bytes // size)
        if room < self.min_size:
            raise UserError(
                f"table {self.name!r} has room for {room:,} items of {size:,} bytes, "
                f"but is sampled only from {self.min_size:,} items on",
                fix="increase bytes or decrease min_size",
            )
        most = memory_limit()
        if room * size > most:
            raise UserError(
                f"table {self.name!r} needs {room * size:,} bytes for {room:,} items of {size:,} bytes, "
                f"but there are {most:,} bytes of memory",
                fix=f"hold fewer items, or limit its bytes, for example to {most // 2:,}",
            )
        return room


def insert_schema(items: Schema) -> Schema:
    """What a writer sends: the items, each with its priority."""
    return Schema((*items.fields, _PRIORITY))


def items_of(inserted: Schema) -> Schema:
    """The item schema of what a writer sends; `ValueError` if the priority is missing."""
    if inserted.fields[-1] != _PRIORITY or len(inserted.fields) == 1:
        raise ValueError(f"items of a replay end with {_PRIORITY}, not with {inserted.fields[-1]}")
    return Schema(inserted.fields[:-1])


def reply_schema(items: Schema) -> Schema:
    """What a sample looks like: the items, each with its key and probability."""
    return Schema((*items.fields, _KEY, _PROBABILITY))
