"""Messages between a policy server and its clients.

A client has a few lanes, each with one request at a time. A request's block is released with its answer, so a request
without an answer is resent after a reconnect; its sequence number tells the server whether it has answered it before.
"""

from __future__ import annotations

from typing import Final

import msgspec

from callsheet.runtime.link.protocol import MAX_MAPPED_BYTES, Natural, decode

SERVICE: Final = "policy"

REQUEST: Final = 1
"""Body: the lane in one byte, then nothing, or one byte per environment: whether its state is reset."""
ANSWER: Final = 2
FAILURE: Final = 3
"""Body: the lane, then the error message."""

MAX_LANES: Final = 8
LANES: Final = tuple(bytes([number]) for number in range(MAX_LANES))
MAX_TEXT_BYTES: Final = 2000
MAX_REQUEST_BYTES: Final = MAX_MAPPED_BYTES // (2 * MAX_LANES)
"""Largest request or answer; a peer maps several of them."""


class ServerInfo(msgspec.Struct, array_like=True):
    """What a server says about itself in the welcome."""

    incarnation: Natural
    answer_schema: bytes
    """The schema of the answers."""
    max_batch: Natural
    """Environments per request."""


_TERMS = msgspec.msgpack.Decoder(ServerInfo)
encode = msgspec.msgpack.Encoder().encode


def decode_server_info(body: bytes) -> ServerInfo:
    """Decode a server's info."""
    return decode(_TERMS, body, "terms")
