"""Messages between a replay server and its clients, and limits that are checked first.

Items are inserted as a stream (callsheet.runtime.stream), with its verbs; the others are here.
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
"""Client: requests `count` items. Server: sends them. `sequence` is the client's request number."""
UPDATE: Final = 12
"""Client: new priorities for `count` keys, both in the body."""
REQUEST_SNAPSHOT: Final = 13
"""Client: asks for a snapshot with its items up to `sequence`: it waits for that, or its buffer runs full."""
STATE: Final = 14
"""Server: the table's state, and what this client waits for. Client: requests it; the answer confirms all messages
before."""

MAX_SAMPLE_ITEMS: Final = 1 << 16
"""Items in one sample."""
MAX_SAMPLE_BYTES: Final = MAX_PAYLOAD_BYTES // 2
"""Bytes of a sample's arrays."""
MAX_UPDATES: Final = 2048
"""Priorities in one message: a few messages must fit into a socket's buffer."""
MAX_REQUESTS: Final = 64
"""Open requests per client."""

POSITION_BITS: Final = 48
EPOCH_BITS: Final = 8
"""A key holds an item's position, its server's epoch and, in the upper bits, its shard's number."""

MAX_PRIORITY: Final = 1e30
"""Small enough for sums of powers to stay finite."""

_ENCODER = msgspec.msgpack.Encoder()


class TableRequest(msgspec.Struct, array_like=True):
    """The hello's body: purpose and table."""

    purpose: Text
    """One of the three above."""
    table: Text


class TableState(msgspec.Struct, array_like=True):
    """The state of a table."""

    size: Natural
    total_weight: float
    """Sum of all sampling weights; shards are sampled in proportion."""
    waiting: str = ""
    """What the client's inserts or samples wait for."""
    schema: bytes = b""
    """The items' schema, once known."""
    capacity: Natural = 0
    """Capacity in items, once known."""
    queue: bool = False
    """Whether sampling removes items."""
    sampling_open: bool = False
    """Whether there are enough items to sample."""


_WANT = msgspec.msgpack.Decoder(TableRequest)
_STATE = msgspec.msgpack.Decoder(TableState)


def encode(message: object) -> bytes:
    """Encode a body."""
    return _ENCODER.encode(message)


def decode_table_request(body: bytes) -> TableRequest:
    """Decode a hello's body."""
    return decode(_WANT, body, "a body")


def decode_table_state(body: bytes) -> TableState:
    """Decode a table's state."""
    return decode(_STATE, body, "a body")


def encode_update(keys: NDArray[np.uint64], priorities: NDArray[np.float32]) -> bytes:
    """The body of an update."""
    return keys.tobytes() + priorities.tobytes()


def decode_update(body: bytes, count: int) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """Decode and check the keys and priorities of an update."""
    if not 0 <= count <= MAX_UPDATES or len(body) != 12 * count:
        raise BadMessage(f"an update of {count} priorities in {len(body)} bytes")
    keys = np.frombuffer(body, "<u8", count)
    priorities = np.frombuffer(body, "<f4", count, 8 * count)
    if not ((priorities >= 0) & (priorities <= MAX_PRIORITY)).all():
        raise BadMessage("a priority that is negative, too large or no number")
    return keys, priorities


def check_priorities(priorities: NDArray[np.float32]) -> None:
    """Check the priorities of inserted items; NaN stands for the largest priority so far."""
    if len(priorities) == 1:
        wrong = priorities.item() < 0 or priorities.item() > MAX_PRIORITY
    else:
        wrong = bool(((priorities < 0) | (priorities > MAX_PRIORITY)).any())
    if wrong:
        raise BadMessage("a priority that is negative or too large")
