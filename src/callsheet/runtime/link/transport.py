"""The two ways in which messages travel: a Unix socket with memory beside it, and ZeroMQ."""

from __future__ import annotations

import array
import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Any, Protocol

import zmq

from callsheet.runtime.link.blocks import Block, Mapped
from callsheet.runtime.link.frame import Parts
from callsheet.runtime.link.protocol import (
    FRESH,
    LARGEST_HEADER,
    LARGEST_PART,
    LARGEST_PAYLOAD,
    NO_BLOCK,
    BadMessage,
    Header,
    encode_data,
    split,
)

SMALL = 32 * 1024
"""Bytes up to which ZeroMQ copies a payload: that costs less than handing it over."""
_CUT_OFF = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_CLOEXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_MOST_PARTS = 2 + LARGEST_PAYLOAD // LARGEST_PART
_NOTHING = memoryview(b"")
_INT = array.array("i").itemsize
_SPACE = socket.CMSG_SPACE(4 * _INT)


class Lost(Exception):
    """The connection is gone."""


class Full(Exception):
    """The peer does not take what it is sent."""


class Wire(Protocol):
    """One connection, seen from one side. Nothing here waits."""

    by_memory: bool

    def send(self, message: bytes) -> None:
        """Send a message without a payload."""

    def send_data(self, header: Header, block: Block | None, length: int, released: int = NO_BLOCK) -> None:
        """Send a header and the first bytes of a block."""

    def close(self) -> None:
        """End it."""


class MemoryWire:
    """Messages on a Unix socket; payloads stay where they are."""

    by_memory = True

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.fd = connection.fileno()
        self._mapped = Mapped()
        self._buffer = bytearray(LARGEST_HEADER)
        self._view = memoryview(self._buffer)
        self._buffers = [self._buffer]
        self.bytes_on_socket = 0

    def send(self, message: bytes) -> None:
        """Send a message without a payload."""
        try:
            self.bytes_on_socket += self.socket.send(message)
        except BlockingIOError:
            raise Full from None
        except OSError:
            raise Lost from None

    def send_data(self, header: Header, block: Block | None, length: int, released: int = NO_BLOCK) -> None:
        """Send a header; the peer reads the block, which is handed over when it is new to it."""
        if block is None or block.shown:
            self.send(encode_data(header, NO_BLOCK if block is None else block.index, length, released))
            return
        message = encode_data(header, block.index, length, released, FRESH)
        try:
            self.bytes_on_socket += socket.send_fds(self.socket, [message], [block.fd])
        except BlockingIOError:
            raise Full from None
        except OSError:
            raise Lost from None
        block.shown = True

    def receive(self) -> tuple[memoryview, memoryview, int, int, int] | None:
        """The next message (valid until the next call), its payload, kind, block and released block; None when there
        is none now."""
        try:
            size, ancillary, flags, _ = self.socket.recvmsg_into(self._buffers, _SPACE, _CLOEXEC)
        except BlockingIOError:
            return None
        except OSError:
            raise Lost from None
        descriptors = _descriptors(ancillary) if ancillary else []
        try:
            if size == 0:
                raise Lost
            self.bytes_on_socket += size
            if flags & _CUT_OFF:
                raise BadMessage("a message that was cut off")
            message = self._view[:size]
            kind, wish, block, released, length = split(message)
            if wish & FRESH:
                if len(descriptors) != 1 or block == NO_BLOCK:
                    raise BadMessage(f"a new block with {len(descriptors)} descriptors")
                self._mapped.add(block, descriptors.pop())
            payload = self._mapped.view(block, length) if length else memoryview(b"")
            return message, payload, kind, block, released
        finally:
            for fd in descriptors:
                os.close(fd)

    def close(self) -> None:
        """End it; arrays that still show the peer's memory keep it until they go."""
        self.socket.close()
        self._mapped.close()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % _INT])
    return list(found)


class NetworkWire:
    """Messages over ZeroMQ: the head in one part, the payload in others of at most `LARGEST_PART` bytes."""

    by_memory = False

    def __init__(self, zmq_socket: zmq.Socket[Any], to: bytes | None = None) -> None:
        self._socket = zmq_socket
        self._to = to
        self._known: dict[int, tuple[memoryview, int, list[zmq.Frame]]] = {}

    def send(self, message: bytes) -> None:
        """Send a message without a payload."""
        self._send(message, ())

    def send_data(self, header: Header, block: Block | None, length: int, released: int = NO_BLOCK) -> None:
        """Send a header and a copy of the block's first bytes, made by the system."""
        message = encode_data(header, NO_BLOCK if block is None else block.index, length, released)
        if block is None or not length:
            self._send(message, ())
        elif length <= SMALL:
            self._send(message, (block.view[:length],))
        else:
            self._send(message, self._frames(block, length))

    def _frames(self, block: Block, length: int) -> list[zmq.Frame]:
        """ZeroMQ's handles of a block's parts. They are made once and sent often: each new one would have to be given
        up by a thread of pyzmq's own."""
        known = self._known.get(block.index)
        if known is None or known[0] is not block.view or known[1] != length:
            frames = [
                zmq.Frame(block.view[at : min(length, at + LARGEST_PART)], copy=False, copy_threshold=0)
                for at in range(0, length, LARGEST_PART)
            ]
            known = self._known[block.index] = (block.view, length, frames)
        return known[2]

    def _send(self, message: bytes, payload: Sequence[memoryview | zmq.Frame]) -> None:
        try:
            if self._to is not None:
                self._socket.send(self._to, _MORE)
            if not payload:
                self._socket.send(message, _NOBLOCK)
                return
            self._socket.send(message, _MORE)
            for part in payload[:-1]:
                self._socket.send(part, _MORE)
            self._socket.send(payload[-1], _NOBLOCK)
        except zmq.Again:
            raise Full from None
        except zmq.ZMQError:
            raise Lost from None

    def close(self) -> None:
        """End it, on the side of the link; a listener's socket is shared."""
        self._known.clear()
        if self._to is None:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.close(0)


def take(zmq_socket: zmq.Socket[Any]) -> list[zmq.Frame]:
    """The parts of a message that has come, not copied; `zmq.Again` when there is none."""
    part = zmq_socket.recv(_NOBLOCK, copy=False)
    parts = [part]
    while part.more:
        part = zmq_socket.recv(_NOBLOCK, copy=False)
        if len(parts) < _MOST_PARTS:  # more than any message has; what is beyond is not kept
            parts.append(part)
    return parts


def parse(parts: list[zmq.Frame]) -> tuple[bytes, memoryview | Parts, int, int, int]:
    """A message that came over ZeroMQ: itself, its payload, kind, block and released block."""
    message = bytes(parts[0].buffer) if parts and len(parts[0]) <= LARGEST_HEADER else b""
    kind, _, block, released, length = split(message)
    if len(parts) != 1 + -(-length // LARGEST_PART):
        raise BadMessage(f"{len(parts) - 1} parts for a payload of {length} bytes")
    if length > LARGEST_PART:
        return message, Parts([part.buffer for part in parts[1:]], length), kind, block, released
    payload = parts[1].buffer if length else _NOTHING
    if len(payload) != length:
        raise BadMessage(f"a payload of {len(payload)} bytes that was said to have {length}")
    return message, payload, kind, block, released
