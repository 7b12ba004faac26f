"""The wire protocol: message types and their limits. Everything a peer sends is validated here before use."""

from __future__ import annotations

import struct
from typing import Annotated, Final, TypeVar

import msgspec

T = TypeVar("T")

MAX_INTEGER: Final = (1 << 63) - 1
"""The largest integer that NumPy arrays, files and other languages can hold."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
"""A non-negative integer that fits into a signed 64-bit field."""
Integer = Annotated[int, msgspec.Meta(ge=-MAX_INTEGER - 1, le=MAX_INTEGER)]
"""Any signed 64-bit integer."""
Text = Annotated[str, msgspec.Meta(max_length=256)]
"""A short string. Peers' names are stored and logged, so their length is bounded."""


class BadMessage(ValueError):
    """A peer sent something that violates the protocol."""


def decode(decoder: msgspec.msgpack.Decoder[T], data: bytes | memoryview, what: str) -> T:
    """Decode `data`; raise `BadMessage` if it is malformed in any way."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadMessage(f"{what} that cannot be read: {error}") from None


PROTOCOL: Final = 2
"""The version this side speaks. Version 2 sends large payloads in parts."""
OLDEST_PROTOCOL: Final = 2
"""The oldest version this side still understands."""

MAX_HEADER_BYTES: Final = 64 * 1024
MAX_PAYLOAD_BYTES: Final = 1 << 30
MAX_PART_BYTES: Final = 256 * 1024
"""The largest ZeroMQ part. ZeroMQ buffers a whole part before it checks the sender's key, so this is the most memory
an unauthenticated connection can cost."""
MAX_BLOCKS: Final = 64
"""Blocks that one side of a connection may own."""
MAX_MAPPED_BYTES: Final = 4 << 30
"""Bytes of a peer's blocks that we map per connection."""
MAX_REASON: Final = 2000
"""Characters of a refusal, which repeats parts of what the peer sent."""

HELLO: Final = 1
WELCOME: Final = 2
REFUSAL: Final = 3
DATA: Final = 4
RELEASE: Final = 5
KEEPALIVE: Final = 6

NEW_BLOCK: Final = 1
"""Flag: the block is new to the peer, and its file descriptor comes with the message."""
NO_BLOCK: Final = 0xFFFF

PREFIX: Final = struct.Struct("<BBHHxxQ")
"""Kind, flags, block, a released block, payload length."""
_BLOCKS: Final = [struct.Struct(f"<{count}H") for count in range(MAX_BLOCKS + 1)]


class Header(msgspec.Struct, array_like=True):
    """Describes the payload of a data message."""

    verb: Natural
    """What the sender wants; each service defines its own verbs."""
    schema: Natural = 0
    """The hash of the payload's schema."""
    count: Natural = 1
    """Items in the payload: every array is `[count, *shape]`."""
    sequence: Natural = 0
    version: Natural = 0
    """Version of the policy or the parameters."""
    shapes: tuple[tuple[Natural, ...], ...] = ()
    """The items' shapes, if the schema leaves some lengths free."""
    body: bytes = b""
    """Extra data of this verb."""


class Hello(msgspec.Struct, array_like=True):
    """A link introduces itself."""

    protocol: Natural
    oldest: Natural
    run: Text
    service: Text
    """The service it wants: trajectories, parameters, replay or policy."""
    name: Text
    """Who it is: role/index/container."""
    incarnation: Natural
    """Differs for each start of the process; later starts have a larger one."""
    host: Text
    """The machine and its network namespace. If both sides agree, they can share memory."""
    schema: bytes = b""
    """What it will send."""
    body: bytes = b""


class Welcome(msgspec.Struct, array_like=True):
    """The listener accepts the link."""

    protocol: Natural
    incarnation: Natural
    """The listener's incarnation."""
    window: Natural
    """Blocks that may be in flight to the listener."""
    socket: Text = ""
    """Name of the abstract socket for shared memory; empty if there is none."""
    token: bytes = b""
    """Proves at that socket that the link received this welcome."""
    schema: bytes = b""
    """What the listener expects."""
    body: bytes = b""


class Refusal(msgspec.Struct, array_like=True):
    """The listener refuses the link."""

    reason: str
    retryable: bool = False
    """Whether the same hello may succeed later."""
    schema: bytes = b""
    fix: str = ""
    """What the peer's user can do about it."""


_RELEASES = PREFIX.pack(RELEASE, 0, NO_BLOCK, NO_BLOCK, 0)
_ENCODER = msgspec.msgpack.Encoder()
_HEADER = msgspec.msgpack.Decoder(Header)
_HELLO = msgspec.msgpack.Decoder(Hello)
_WELCOME = msgspec.msgpack.Decoder(Welcome)
_REFUSAL = msgspec.msgpack.Decoder(Refusal)


def encode(kind: int, message: msgspec.Struct | None = None) -> bytes:
    """Encode a message without a payload."""
    head = PREFIX.pack(kind, 0, NO_BLOCK, NO_BLOCK, 0)
    return head + _ENCODER.encode(message) if message is not None else head


def encode_data(header: Header, block: int, length: int, released: int = NO_BLOCK, flags: int = 0) -> bytes:
    """Encode the head of a data message; its payload travels separately."""
    return PREFIX.pack(DATA, flags, block, released, length) + _ENCODER.encode(header)


def encode_release(blocks: list[int]) -> bytes:
    """Encode a message that releases blocks."""
    return _RELEASES + _BLOCKS[len(blocks)].pack(*blocks)


def decode_release(message: bytes | memoryview) -> tuple[int, ...]:
    """The blocks that a message releases."""
    length = len(message) - PREFIX.size
    if length % 2 or not 0 <= length <= 2 * MAX_BLOCKS:
        raise BadMessage(f"a release of {length} bytes")
    return _BLOCKS[length // 2].unpack_from(message, PREFIX.size)


def decode_prefix(message: bytes | memoryview) -> tuple[int, int, int, int, int]:
    """Decode and check a message's prefix: kind, flags, block, released block, payload length."""
    if not PREFIX.size <= len(message) <= MAX_HEADER_BYTES:
        raise BadMessage(f"a message of {len(message)} bytes")
    kind, flags, block, released, length = PREFIX.unpack_from(message)
    if kind not in (HELLO, WELCOME, REFUSAL, DATA, RELEASE, KEEPALIVE):
        raise BadMessage(f"kind {kind}")
    if length > MAX_PAYLOAD_BYTES or (length and (block == NO_BLOCK or kind != DATA)):
        raise BadMessage(f"kind {kind} with a payload of {length} bytes in block {block}")
    if (block != NO_BLOCK and block >= MAX_BLOCKS) or (released != NO_BLOCK and released >= MAX_BLOCKS):
        raise BadMessage(f"block {block}, released {released}")
    return kind, flags, block, released, length


def decode_header(message: bytes | memoryview) -> Header:
    """Decode the header of a data message."""
    return decode(_HEADER, message[PREFIX.size :], "a header")


def decode_hello(message: bytes | memoryview) -> Hello:
    """Decode a hello."""
    return decode(_HELLO, message[PREFIX.size :], "a hello")


def decode_welcome(message: bytes | memoryview) -> Welcome:
    """Decode a welcome."""
    return decode(_WELCOME, message[PREFIX.size :], "a welcome")


def decode_refusal(message: bytes | memoryview) -> Refusal:
    """Decode a refusal."""
    return decode(_REFUSAL, message[PREFIX.size :], "a refusal")
