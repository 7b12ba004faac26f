"""Limits for connections that have not completed the handshake: their number, and the bytes they may send.

ZeroMQ accepts every connection and then waits for a handshake, without a limit: a thousand silent connections would
use up the process's file descriptors. Its monitor reports which descriptors it accepted and closed; what happens in
between, the kernel knows (TCP_INFO). The descriptors belong to ZeroMQ, so we look at duplicates, and recognize a
reused descriptor by the socket's cookie.

Only Linux reports this; elsewhere nothing is limited.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Final

_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)
_SO_COOKIE: Final = 57
_LAST_DATA_RECEIVED: Final = struct.Struct("52x I")
_BYTES: Final = struct.Struct("120x QQ")
"""From Linux's `tcp_info`: bytes acknowledged by the other side, bytes received from it."""
_MAX_HANDSHAKE_BYTES: Final = 16 * 1024
"""No honest client sends more before the handshake is complete; it takes a few hundred."""


class HalfOpenConnections:
    """The half-open connections of one listener."""

    def __init__(self, sent_when_done: int, limit: int) -> None:
        """`sent_when_done`: once we have sent more than this on a connection, its handshake is complete."""
        self._sent_when_done = sent_when_done
        self._limit = limit
        self._cookies: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._cookies)

    @property
    def too_many(self) -> bool:
        """Whether some must be closed."""
        return len(self._cookies) > self._limit

    def on_accepted(self, fd: int, port: int) -> None:
        """ZeroMQ accepted a connection."""
        if _TCP_INFO is None:
            return
        try:
            with _duplicate(fd) as connection:
                if connection.getsockname()[1] == port:
                    self._cookies[fd] = _cookie(connection)
        except (OSError, IndexError):
            pass  # already closed, and the descriptor may have been reused

    def on_closed(self, fd: int) -> None:
        """ZeroMQ closed a connection."""
        self._cookies.pop(fd, None)

    def enforce(self) -> None:
        """Stop tracking connections that completed the handshake, shut down those that sent too much and, if there
        are still too many, those that have been silent the longest."""
        silent: list[tuple[int, int]] = []
        for fd, cookie in list(self._cookies.items()):
            try:
                with _duplicate(fd) as connection:
                    if _cookie(connection) != cookie:
                        raise OSError("the descriptor was reused")
                    info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO or 0, 256)
            except OSError:
                self.on_closed(fd)
                continue
            sent, received = _BYTES.unpack_from(info)
            if sent > self._sent_when_done:
                self.on_closed(fd)
            elif received > _MAX_HANDSHAKE_BYTES:
                self._shut_down(fd)
            else:
                silent.append((_LAST_DATA_RECEIVED.unpack_from(info)[0], fd))
        for _, fd in sorted(silent, reverse=True)[: max(0, len(self._cookies) - self._limit)]:
            self._shut_down(fd)

    def _shut_down(self, fd: int) -> None:
        cookie = self._cookies.pop(fd)
        try:
            with _duplicate(fd) as connection:
                if _cookie(connection) == cookie:
                    connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # already closed


def _duplicate(fd: int) -> socket.socket:
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def _cookie(connection: socket.socket) -> bytes:
    return connection.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8)
