"""What a replay's server and its clients say to each other, and the limits that are checked before anything is used.

Items come as a stream (callsheet.runtime.stream), with its verbs; the others are here.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from callsheet.runtime.link.protocol import MAX_PAYLOAD_BYTES, BadMessage, Natural, Text, decode

SERVICE: Final = "replay"
WRITE: Final = "write"
WRITE_DURABLY: Final = "write durably"
TO_SAMPLE: Final = "sample"

SAMPLE: Final = 11
"""Client: wants `count` items. Server: here they are. `sequence` is the client's number of the request."""
UPDATE: Final = 12
"""Client: new priorities for `count` keys, both in the body."""
REQUEST_SNAPSHOT: Final = 13
"""Client: a snapshot with its items up to `sequence` would help: it waits for that, or its memory runs full."""
STATE: Final = 14
"""Server: how the table is, and what this client waits for. Client: wants to be told; everything before is done then."""

MAX_SAMPLE_ITEMS: Final = 1 << 16
"""Items in one sample."""
MAX_SAMPLE_BYTES: Final = MAX_PAYLOAD_BYTES // 2
"""Bytes of their arrays."""
MAX_UPDATES: Final = 2048
"""Priorities in one message: a few of them must fit into a socket's buffer."""
MAX_REQUESTS: Final = 64
"""Requests of one client that wait."""

POSITION_BITS: Final = 48
EPOCH_BITS: Final = 8
"""A key holds an item's position, the life of its server, and its shard's number in the upper bits."""

MAX_PRIORITY: Final = 1e30
"""So that sums of its powers stay finite."""

_ENCODER = msgspec.msgpack.Encoder()


class TableRequest(msgspec.Struct, array_like=True):
    """In the hello: what for, and which table."""

    purpose: Text
    """One of the three above."""
    table: Text


class TableState(msgspec.Struct, array_like=True):
    """How a table is."""

    size: Natural
    total_weight: float
    """How much there is to draw from: shards are sampled in proportion."""
    waiting: str = ""
    """What the client's inserts or samples wait for."""
    schema: bytes = b""
    """What items look like, once that is known."""
    capacity: Natural = 0
    """Items that it can hold, once that is known."""
    queue: bool = False
    """Whether items are gone once they were sampled."""
    sampling_open: bool = False
    """Whether there are enough items to be sampled."""


_WANT = msgspec.msgpack.Decoder(TableRequest)
_STATE = msgspec.msgpack.Decoder(TableState)


def encode(message: object) -> bytes:
    """A body."""
    return _ENCODER.encode(message)


def decode_table_request(body: bytes) -> TableRequest:
    """What a hello wants."""
    return decode(_WANT, body, "a body")


def decode_table_state(body: bytes) -> TableState:
    """How the table is."""
    return decode(_STATE, body, "a body")


def encode_update(keys: NDArray[np.uint64], priorities: NDArray[np.float32]) -> bytes:
    """The body of an update."""
    return keys.tobytes() + priorities.tobytes()


def decode_update(body: bytes, count: int) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """Keys and priorities of an update."""
    if not 0 <= count <= MAX_UPDATES or len(body) != 12 * count:
        raise BadMessage(f"an update of {count} priorities in {len(body)} bytes")
    keys = np.frombuffer(body, "<u8", count)
    priorities = np.frombuffer(body, "<f4", count, 8 * count)
    if not ((priorities >= 0) & (priorities <= MAX_PRIORITY)).all():
        raise BadMessage("a priority that is negative, too large or no number")
    return keys, priorities


def check_priorities(priorities: NDArray[np.float32]) -> None:
    """Of inserted items; one that is no number stands for the largest so far."""
    if len(priorities) == 1:
        wrong = priorities.item() < 0 or priorities.item() > MAX_PRIORITY
    else:
        wrong = bool(((priorities < 0) | (priorities > MAX_PRIORITY)).any())
    if wrong:
        raise BadMessage("a priority that is negative or too large")
