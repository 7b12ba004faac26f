"""What a policy server and its clients say to each other.

A client has a few lanes, each with one request at a time. A request's block is given back with its answer, so that a
request without an answer is sent again when the connection was lost; its sequence tells the server whether it has
answered it before.
"""

from __future__ import annotations

from typing import Final

import msgspec

from callsheet.runtime.link.protocol import MAX_MAPPED_BYTES, Natural, decode

SERVICE: Final = "policy"

REQUEST: Final = 1
"""Its body: the lane in one byte, then nothing, or one byte for each environment: whether it begins anew."""
ANSWER: Final = 2
FAILURE: Final = 3
"""Its body: the lane, then what went wrong."""

MAX_LANES: Final = 8
LANES: Final = tuple(bytes([number]) for number in range(MAX_LANES))
MAX_TEXT_BYTES: Final = 2000
MAX_REQUEST_BYTES: Final = MAX_MAPPED_BYTES // (2 * MAX_LANES)
"""Bytes of a request or an answer: a peer maps so many of them."""


class ServerInfo(msgspec.Struct, array_like=True):
    """What a server says about itself in the welcome."""

    incarnation: Natural
    answers: bytes
    """The schema of the answers."""
    most: Natural
    """Environments that one request may have."""


_TERMS = msgspec.msgpack.Decoder(ServerInfo)
encode = msgspec.msgpack.Encoder().encode


def decode_server_info(body: bytes) -> ServerInfo:
    """A server's terms."""
    return decode(_TERMS, body, "terms")
