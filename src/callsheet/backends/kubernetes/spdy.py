"""Just enough SPDY/3.1 to forward one connection: two streams inside a websocket, as the API server tunnels them.

Kubernetes' simple channel protocol cannot say that one side has finished; this one can, and a client that reads until
the end of a stream needs it. Only what a forward uses is here: opening, data, its end, pings and resets.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

PROTOCOL: Final = "SPDY/3.1+portforward.k8s.io"
ERROR_STREAM, DATA_STREAM = 1, 3
_SYN_STREAM, _RST_STREAM, _PING, _GOAWAY = 1, 3, 6, 7
_CONTROL = 0x8000_0000
_VERSION = 3
_FIN = 1
_HEAD = struct.Struct(">II")


class Tunnel:
    """Frames out through `send`; bytes of the other side come in through `receive`."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._compressor = zlib.compressobj()
        self._rest = b""
        self.complaint = b""
        """What the other side wrote to the error stream."""

    def open(self, port: int) -> None:
        """Ask for a connection to a port of the pod; nothing will be written to its error stream."""
        for stream, kind, flags in ((ERROR_STREAM, "error", _FIN), (DATA_STREAM, "data", 0)):
            headers = {"streamtype": kind, "port": str(port), "requestid": "0"}
            body = struct.pack(">IIH", stream, 0, 0) + self._pack(headers)
            self._control(_SYN_STREAM, body, flags)

    def _pack(self, headers: dict[str, str]) -> bytes:
        # A block without the protocol's dictionary is longer and as valid: its header says that none is needed.
        block = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for text in (name.encode(), value.encode()):
                block += struct.pack(">I", len(text)) + text
        return self._compressor.compress(block) + self._compressor.flush(zlib.Z_SYNC_FLUSH)

    def write(self, data: bytes) -> None:
        """Send bytes to the pod."""
        self._send(_HEAD.pack(DATA_STREAM, len(data)) + data)

    def finish(self) -> None:
        """Say that no more will be sent."""
        self._send(_HEAD.pack(DATA_STREAM, _FIN << 24))

    def _control(self, kind: int, body: bytes, flags: int = 0) -> None:
        self._send(_HEAD.pack(_CONTROL | _VERSION << 16 | kind, flags << 24 | len(body)) + body)

    def receive(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The pod's bytes, until the pod has sent all or refuses to."""
        for piece in pieces:
            self._rest += piece
            while (frame := self._take()) is not None:
                word, flags, body = frame
                if word & _CONTROL:
                    if self._ends(word & 0xFFFF, body):
                        return
                    continue
                if word == ERROR_STREAM:
                    self.complaint += body
                elif body:
                    yield body
                if flags & _FIN and (word == DATA_STREAM or self.complaint):
                    return

    def _take(self) -> tuple[int, int, bytes] | None:
        """The next whole frame."""
        if len(self._rest) < _HEAD.size:
            return None
        word, length = _HEAD.unpack_from(self._rest)
        end = _HEAD.size + (length & 0xFF_FFFF)
        if len(self._rest) < end:
            return None
        body, self._rest = self._rest[_HEAD.size : end], self._rest[end:]
        return word, length >> 24, body

    def _ends(self, kind: int, body: bytes) -> bool:
        if kind == _PING:
            self._control(_PING, body)
        if kind == _RST_STREAM:
            return int.from_bytes(body[:4], "big") == DATA_STREAM
        return kind == _GOAWAY
