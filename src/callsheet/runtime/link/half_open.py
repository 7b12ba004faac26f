"""Connections that have not shown the run's key yet: how many there may be, and how much they may say.

ZeroMQ accepts whoever connects, and waits for a handshake. Nothing in it limits how many wait: a thousand silent
connections would take all descriptors of a process. It tells which descriptors it accepted and gave up; what became of
those in between, the system knows. They are ZeroMQ's, so they are looked at through duplicates, and a number that means
another socket by now is known by the socket's cookie.

Where the system does not tell (only Linux does), nothing is limited.
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
"""Of Linux's `tcp_info`: bytes that the other side has acknowledged, bytes that it has sent."""
_LONGEST: Final = 16 * 1024
"""Bytes that nobody needs to send before the handshake is done: it takes some hundred."""


class HalfOpen:
    """The connections of one listener that are between accept and handshake."""

    def __init__(self, sent_when_done: int, most: int) -> None:
        """`sent_when_done`: a connection on which we have sent more than this has done its handshake."""
        self._sent_when_done = sent_when_done
        self._most = most
        self._cookies: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._cookies)

    @property
    def too_many(self) -> bool:
        """Whether some must go."""
        return len(self._cookies) > self._most

    def accepted(self, fd: int, port: int) -> None:
        """ZeroMQ has accepted a connection."""
        if _TCP_INFO is None:
            return
        try:
            with _duplicate(fd) as same:
                if same.getsockname()[1] == port:
                    self._cookies[fd] = _cookie(same)
        except (OSError, IndexError):
            pass  # it has gone again, and the number may be something else's

    def gone(self, fd: int) -> None:
        """ZeroMQ has given a connection up."""
        self._cookies.pop(fd, None)

    def look(self) -> None:
        """Forget those that are through, and end those that say too much; and of the others, if there are too many,
        those that have been silent for longest."""
        silent: list[tuple[int, int]] = []
        for fd, cookie in list(self._cookies.items()):
            try:
                with _duplicate(fd) as same:
                    if _cookie(same) != cookie:
                        raise OSError("another socket by now")
                    info = same.getsockopt(socket.IPPROTO_TCP, _TCP_INFO or 0, 256)
            except OSError:
                self.gone(fd)
                continue
            sent, received = _BYTES.unpack_from(info)
            if sent > self._sent_when_done:
                self.gone(fd)
            elif received > _LONGEST:
                self._end(fd)
            else:
                silent.append((_LAST_DATA_RECEIVED.unpack_from(info)[0], fd))
        for _, fd in sorted(silent, reverse=True)[: max(0, len(self._cookies) - self._most)]:
            self._end(fd)

    def _end(self, fd: int) -> None:
        cookie = self._cookies.pop(fd)
        try:
            with _duplicate(fd) as same:
                if _cookie(same) == cookie:
                    same.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has gone by itself


def _duplicate(fd: int) -> socket.socket:
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def _cookie(one: socket.socket) -> bytes:
    return one.getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8)
