"""Bytes from another process become typed values here, and whatever is wrong with them is one kind of error."""

from __future__ import annotations

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
