"""What a table is to be: said once by whoever starts the server, checked before anything is allocated."""

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
    """One table of a replay server."""

    name: str = "replay"
    kind: Kind = "uniform"
    """`uniform`: every item has the same chance; `prioritized`: by priority; `fifo`: a queue, each item once."""
    items: int = 1_000_000
    """How many items it holds. Then the oldest make room; in a queue, inserts wait."""
    bytes: int | None = None
    """How many bytes of items it holds, if that is fewer."""
    schema: Schema | None = None
    """What its items look like; None to learn it from the first item."""
    alpha: float = 0.6
    """How much priorities count: 0 not at all, 1 fully."""
    min_size: int = 1
    """Items from which on samples are taken."""
    samples_per_insert: float | None = None
    """How often each item is sampled on average; the side that is ahead waits. None for no such limit."""
    tolerance: float | None = None
    """How many samples the two sides may be apart; None for a tenth of `min_size` x `samples_per_insert`, and at least
    the samples for one insert."""
    seed: int | None = None
    """For draws that can be repeated."""

    def __post_init__(self) -> None:
        kinds = get_args(Kind)
        if self.kind not in kinds:
            fix = did_you_mean(str(self.kind), kinds, f"choose one of {', '.join(kinds)}")
            raise UserError(f"there is no kind of table {self.kind!r}", fix=fix)
        if not 0 < len(self.name) <= 128:
            raise UserError(f"a table's name has 1 to 128 characters, not {len(self.name)}", fix="shorten it")
        limits.integer(f"items of table {self.name!r}", self.items, 1)
        limits.integer(f"min_size of table {self.name!r}", self.min_size, 1)
        if self.bytes is not None:
            limits.integer(f"bytes of table {self.name!r}", self.bytes, 1)
        if self.seed is not None:
            limits.integer(f"seed of table {self.name!r}", self.seed, 0)
        if not 0 <= self.alpha <= 10:
            raise UserError(f"alpha {self.alpha} is out of bounds", fix="choose one from 0 to 10")
        if self.min_size > self.items:
            raise UserError(
                f"table {self.name!r} holds {self.items} items and would be sampled from {self.min_size} on",
                fix="make min_size smaller or the table larger",
            )
        self.limiter()
        if self.schema is not None:
            self.capacity(self.schema)

    def limiter(self) -> RateLimiter:
        """A limiter that has counted nothing yet."""
        ratio = self.samples_per_insert
        if ratio is None:
            return RateLimiter(self.min_size)
        usual = max(ratio, 0.1 * ratio * self.min_size)
        return RateLimiter(self.min_size, ratio, usual if self.tolerance is None else self.tolerance)

    def capacity(self, schema: Schema) -> int:
        """Items of this schema that it can hold."""
        if not schema.fixed:
            raise UserError(
                f"items of table {self.name!r} have lengths that differ: {schema}",
                fix="cut them to one length and pad the last, see callsheet.runtime.replay.cut",
            )
        taken = {KEY, PROBABILITY, PRIORITY} & set(schema.names)
        if taken:
            raise UserError(f"an array cannot be called {taken.pop()!r}", fix="choose another name")
        size = schema.item_bytes
        room = self.items if self.bytes is None or not size else min(self.items, self.bytes // size)
        if room < self.min_size:
            raise UserError(
                f"table {self.name!r} has room for {room:,} items of {size:,} bytes, "
                f"and is sampled from {self.min_size:,} on",
                fix="give it more bytes, or make min_size smaller",
            )
        most = memory_limit()
        if room * size > most:
            raise UserError(
                f"table {self.name!r} would take {room * size:,} bytes for {room:,} items of {size:,} bytes, "
                f"and there are {most:,} bytes of memory",
                fix=f"let it hold fewer items, or say how many bytes it may take, such as {most // 2:,}",
            )
        return room


def insert_schema(items: Schema) -> Schema:
    """What a writer sends: the items, each with its priority."""
    return Schema((*items.fields, _PRIORITY))


def items_of(inserted: Schema) -> Schema:
    """What the items look like that a writer sends; a `ValueError` when they come without a priority."""
    if inserted.fields[-1] != _PRIORITY or len(inserted.fields) == 1:
        raise ValueError(f"items of a replay end with {_PRIORITY}, not with {inserted.fields[-1]}")
    return Schema(inserted.fields[:-1])


def reply_schema(items: Schema) -> Schema:
    """What a sample looks like: the items, each with its key and its chance."""
    return Schema((*items.fields, _KEY, _PROBABILITY))
