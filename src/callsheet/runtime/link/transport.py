"""The two ways messages travel: a Unix socket with shared memory, and ZeroMQ."""

from __future__ import annotations

import array
import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Any, Protocol

import zmq

from callsheet.runtime.link.blocks import Block, MappedBlocks
from callsheet.runtime.link.frame import MultipartPayload
from callsheet.runtime.link.protocol import (
    MAX_HEADER_BYTES,
    MAX_PART_BYTES,
    MAX_PAYLOAD_BYTES,
    NEW_BLOCK,
    NO_BLOCK,
    BadMessage,
    Header,
    decode_prefix,
    encode_data,
)

SMALL = 32 * 1024
"""Up to this many bytes, letting ZeroMQ copy a payload is cheaper than handing it over."""
_TRUNCATED = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_CLOEXEC = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_NOBLOCK = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_MAX_PARTS = 2 + MAX_PAYLOAD_BYTES // MAX_PART_BYTES
_NOTHING = memoryview(b"")
_INT = array.array("i").itemsize
_SPACE = socket.CMSG_SPACE(4 * _INT)


class Disconnected(Exception):
    """The connection is gone."""


class SendFull(Exception):
    """The peer does not read what we send."""


class Transport(Protocol):
    """One side of a connection. No call blocks."""

    shared_memory: bool

    def send(self, message: bytes) -> None:
        """Send a message without a payload."""

    def send_data(self, header: Header, block: Block | None, length: int, released: int = NO_BLOCK) -> None:
        """Send a header and the first bytes of a block."""

    def close(self) -> None:
        """Close it."""


class ShmTransport:
    """Messages on a Unix socket; payloads stay in shared memory."""

    shared_memory = True

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.socket = connection
        self.fd = connection.fileno()
        self._mapped = MappedBlocks()
        self._buffer = bytearray(MAX_HEADER_BYTES)
        self._view = memoryview(self._buffer)
        self._buffers = [self._buffer]
        self.bytes_on_socket = 0

    def send(self, message: bytes) -> None:
        """Send a message without a payload."""
        try:
            self.bytes_on_socket += self.socket.send(message)
        except BlockingIOError:
            raise SendFull from None
        except OSError:
            raise Disconnected from None

    def send_data(self, header: Header, block: Block | None, length: int, released: int = NO_BLOCK) -> None:
        """Send a header. The peer reads the block in place; if the block is new to it, the descriptor goes along."""
        if block is None or block.shared:
            self.send(encode_data(header, NO_BLOCK if block is None else block.index, length, released))
            return
        message = encode_data(header, block.index, length, released, NEW_BLOCK)
        try:
            self.bytes_on_socket += socket.send_fds(self.socket, [message], [block.fd])
        except BlockingIOError:
            raise SendFull from None
        except OSError:
            raise Disconnected from None
        block.shared = True

    def receive(self) -> tuple[memoryview, memoryview, int, int, int] | None:
        """The next message (valid until the next call), its payload, kind, block and released block; None if there is
        none."""
        try:
            size, ancillary, recv_flags, _ = self.socket.recvmsg_into(self._buffers, _SPACE, _CLOEXEC)
        except BlockingIOError:
            return None
        except OSError:
            raise Disconnected from None
        descriptors = _received_fds(ancillary) if ancillary else []
        try:
            if size == 0:
                raise Disconnected
            self.bytes_on_socket += size
            if recv_flags & _TRUNCATED:
                raise BadMessage("a message that was cut off")
            message = self._view[:size]
            kind, flags, block, released, length = decode_prefix(message)
            if flags & NEW_BLOCK:
                if len(descriptors) != 1 or block == NO_BLOCK:
                    raise BadMessage(f"a new block with {len(descriptors)} descriptors")
                self._mapped.add(block, descriptors.pop())
            payload = self._mapped.view(block, length) if length else memoryview(b"")
            return message, payload, kind, block, released
        finally:
            for fd in descriptors:
                os.close(fd)

    def close(self) -> None:
        """Close it. Arrays that still use the peer's memory keep it alive."""
        self.socket.close()
        self._mapped.close()


def _received_fds(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % _INT])
    return list(fds)


class ZmqTransport:
    """Messages over ZeroMQ: the head in one part, the payload in parts of at most `MAX_PART_BYTES`."""

    shared_memory = False

    def __init__(self, zmq_socket: zmq.Socket[Any], route: bytes | None = None) -> None:
        self._socket = zmq_socket
        self._route = route
        self._frame_cache: dict[int, tuple[memoryview, int, list[zmq.Frame]]] = {}

    def send(self, message: bytes) -> None:
        """Send a message without a payload."""
        self._send(message, ())

    def send_data(self, header: Header, block: Block | None, length: int, released: int = NO_BLOCK) -> None:
        """Send a header and the first bytes of a block; the kernel copies them."""
        message = encode_data(header, NO_BLOCK if block is None else block.index, length, released)
        if block is None or not length:
            self._send(message, ())
        elif length <= SMALL:
            self._send(message, (block.view[:length],))
        else:
            self._send(message, self._frames(block, length))

    def _frames(self, block: Block, length: int) -> list[zmq.Frame]:
        """ZeroMQ frames for the parts of a block, made once and reused: freeing one costs a wake-up of pyzmq's own
        thread."""
        cached = self._frame_cache.get(block.index)
        if cached is None or cached[0] is not block.view or cached[1] != length:
            frames = [
                zmq.Frame(block.view[at : min(length, at + MAX_PART_BYTES)], copy=False, copy_threshold=0)
                for at in range(0, length, MAX_PART_BYTES)
            ]
            cached = self._frame_cache[block.index] = (block.view, length, frames)
        return cached[2]

    def _send(self, message: bytes, payload: Sequence[memoryview | zmq.Frame]) -> None:
        try:
            if self._route is not None:
                self._socket.send(self._route, _MORE)
            if not payload:
                self._socket.send(message, _NOBLOCK)
                return
            self._socket.send(message, _MORE)
            for part in payload[:-1]:
                self._socket.send(part, _MORE)
            self._socket.send(payload[-1], _NOBLOCK)
        except zmq.Again:
            raise SendFull from None
        except zmq.ZMQError:
            raise Disconnected from None

    def close(self) -> None:
        """Close it, on the link's side; a listener's socket is shared by all its peers."""
        self._frame_cache.clear()
        if self._route is None:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.close(0)


def receive(zmq_socket: zmq.Socket[Any]) -> list[zmq.Frame]:
    """Receive the parts of one message without copying; `zmq.Again` if there is none."""
    part = zmq_socket.recv(_NOBLOCK, copy=False)
    parts = [part]
    while part.more:
        part = zmq_socket.recv(_NOBLOCK, copy=False)
        if len(parts) < _MAX_PARTS:  # more than any valid message has; the rest is dropped
            parts.append(part)
    return parts


def parse(parts: list[zmq.Frame]) -> tuple[bytes, memoryview | MultipartPayload, int, int, int]:
    """Parse a message from ZeroMQ: message, payload, kind, block and released block."""
    message = bytes(parts[0].buffer) if parts and len(parts[0]) <= MAX_HEADER_BYTES else b""
    kind, _, block, released, length = decode_prefix(message)
    if len(parts) != 1 + -(-length // MAX_PART_BYTES):
        raise BadMessage(f"{len(parts) - 1} parts for a payload of {length} bytes")
    if length > MAX_PART_BYTES:
        return message, MultipartPayload([part.buffer for part in parts[1:]], length), kind, block, released
    payload = parts[1].buffer if length else _NOTHING
    if len(payload) != length:
        raise BadMessage(f"a payload of {len(payload)} bytes that was said to have {length}")
    return message, payload, kind, block, released
