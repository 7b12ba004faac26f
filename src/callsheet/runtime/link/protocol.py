"""The words that two processes exchange, and their limits: everything from a peer is checked here before it is used."""

from __future__ import annotations

import struct
from typing import Annotated, Final, TypeVar

import msgspec

T = TypeVar("T")

LARGEST_INTEGER: Final = (1 << 63) - 1
"""What an array of integers, a file and another language can hold."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_INTEGER)]
"""A whole number from 0 that fits into 64 bits with a sign."""
Integer = Annotated[int, msgspec.Meta(ge=-LARGEST_INTEGER - 1, le=LARGEST_INTEGER)]
"""Any whole number of 64 bits."""
Text = Annotated[str, msgspec.Meta(max_length=256)]
"""A name, or a few words: what is kept of a peer or written into a log has an end."""


class BadMessage(ValueError):
    """A peer said something that the protocol does not know."""


def decode(decoder: msgspec.msgpack.Decoder[T], data: bytes | memoryview, what: str) -> T:
    """The value in these bytes; a `BadMessage` when they hold none, however they are broken."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadMessage(f"{what} that cannot be read: {error}") from None


PROTOCOL: Final = 2
"""What this version speaks. 2: large payloads travel in parts."""
OLDEST: Final = 2
"""The oldest version that it still understands."""

LARGEST_HEADER: Final = 64 * 1024
LARGEST_PAYLOAD: Final = 1 << 30
LARGEST_PART: Final = 256 * 1024
"""Bytes of a payload that travel in one part. ZeroMQ takes a part in whole before it knows whether the sender has the
run's key: this is what a stranger's connection can cost."""
MOST_BLOCKS: Final = 64
"""Blocks that one side of one connection may have."""
MOST_MEMORY: Final = 4 << 30
"""Bytes of a peer's blocks that we map for one connection."""

HELLO: Final = 1
WELCOME: Final = 2
REFUSAL: Final = 3
DATA: Final = 4
RELEASE: Final = 5
ALIVE: Final = 6

FRESH: Final = 1
"""Flag: the block is a new one, its descriptor comes along."""
NO_BLOCK: Final = 0xFFFF

PREFIX: Final = struct.Struct("<BBHHxxQ")
"""Kind, flags, block, a block that is given back, length of the payload."""
_BLOCKS: Final = [struct.Struct(f"<{count}H") for count in range(MOST_BLOCKS + 1)]


class Header(msgspec.Struct, array_like=True):
    """What a data message says about its payload."""

    verb: Natural
    """What is wanted; each pattern has its own words."""
    schema: Natural = 0
    """The hash of the payload's schema."""
    count: Natural = 1
    """Items in the payload: every array is `[count, *shape]`."""
    sequence: Natural = 0
    version: Natural = 0
    """Of the policy or the parameters."""
    shapes: tuple[tuple[Natural, ...], ...] = ()
    """The items' shapes, when the schema leaves some lengths free."""
    body: bytes = b""
    """What only this verb knows."""


class Hello(msgspec.Struct, array_like=True):
    """A link introduces itself."""

    protocol: Natural
    oldest: Natural
    run: Text
    pattern: Text
    """What it wants to talk about: trajectories, parameters, replay, policy."""
    name: Text
    """Who it is: role/index/container."""
    incarnation: Natural
    """Random for each start of the process, and later starts have a larger one."""
    host: Text
    """The machine and its network namespace: equal when memory can be handed over."""
    schema: bytes = b""
    """What it will send."""
    body: bytes = b""


class Welcome(msgspec.Struct, array_like=True):
    """A listener's answer."""

    protocol: Natural
    incarnation: Natural
    """Of the listener."""
    window: Natural
    """Blocks that may be in flight towards the listener."""
    socket: Text = ""
    """Name of the abstract socket for memory; empty when there is none."""
    token: bytes = b""
    """Proves at that socket that this welcome was received."""
    schema: bytes = b""
    """What the listener takes."""
    body: bytes = b""


class Refusal(msgspec.Struct, array_like=True):
    """A listener's no."""

    reason: str
    again: bool = False
    """Whether the same hello may be welcome later."""
    schema: bytes = b""
    fix: str = ""
    """What the peer's user can do."""


_RELEASES = PREFIX.pack(RELEASE, 0, NO_BLOCK, NO_BLOCK, 0)
_ENCODER = msgspec.msgpack.Encoder()
_HEADER = msgspec.msgpack.Decoder(Header)
_HELLO = msgspec.msgpack.Decoder(Hello)
_WELCOME = msgspec.msgpack.Decoder(Welcome)
_REFUSAL = msgspec.msgpack.Decoder(Refusal)


def encode(kind: int, message: msgspec.Struct | None = None) -> bytes:
    """A message without a payload."""
    head = PREFIX.pack(kind, 0, NO_BLOCK, NO_BLOCK, 0)
    return head + _ENCODER.encode(message) if message is not None else head


def encode_data(header: Header, block: int, length: int, released: int = NO_BLOCK, flags: int = 0) -> bytes:
    """A data message; its payload travels beside it."""
    return PREFIX.pack(DATA, flags, block, released, length) + _ENCODER.encode(header)


def encode_release(blocks: list[int]) -> bytes:
    """Gives blocks back."""
    return _RELEASES + _BLOCKS[len(blocks)].pack(*blocks)


def released_by(message: bytes | memoryview) -> tuple[int, ...]:
    """The blocks that a message gives back."""
    length = len(message) - PREFIX.size
    if length % 2 or not 0 <= length <= 2 * MOST_BLOCKS:
        raise BadMessage(f"a release of {length} bytes")
    return _BLOCKS[length // 2].unpack_from(message, PREFIX.size)


def split(message: bytes | memoryview) -> tuple[int, int, int, int, int]:
    """The prefix of a message: kind, flags, block, released block, length of the payload."""
    if not PREFIX.size <= len(message) <= LARGEST_HEADER:
        raise BadMessage(f"a message of {len(message)} bytes")
    kind, flags, block, released, length = PREFIX.unpack_from(message)
    if kind not in (HELLO, WELCOME, REFUSAL, DATA, RELEASE, ALIVE):
        raise BadMessage(f"kind {kind}")
    if length > LARGEST_PAYLOAD or (length and (block == NO_BLOCK or kind != DATA)):
        raise BadMessage(f"kind {kind} with a payload of {length} bytes in block {block}")
    if (block != NO_BLOCK and block >= MOST_BLOCKS) or (released != NO_BLOCK and released >= MOST_BLOCKS):
        raise BadMessage(f"block {block}, released {released}")
    return kind, flags, block, released, length


def header_of(message: bytes | memoryview) -> Header:
    """The header of a data message."""
    return decode(_HEADER, message[PREFIX.size :], "a header")


def hello_of(message: bytes | memoryview) -> Hello:
    """The hello in a message."""
    return decode(_HELLO, message[PREFIX.size :], "a hello")


def welcome_of(message: bytes | memoryview) -> Welcome:
    """The welcome in a message."""
    return decode(_WELCOME, message[PREFIX.size :], "a welcome")


def refusal_of(message: bytes | memoryview) -> Refusal:
    """The refusal in a message."""
    return decode(_REFUSAL, message[PREFIX.size :], "a refusal")
