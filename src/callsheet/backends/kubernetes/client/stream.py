"""The bytes of a followed log as they come, at a fraction of what a general HTTP client takes for them.

The API server sends every line of such a log as a chunk, and a TLS record, of its own. A client that makes a Python
object of each spends 40 microseconds on a line; here one turn of the event loop takes what many lines have become in
the socket. What a proxy of the user's stands in front of goes the general way.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING
from urllib.request import getproxies, proxy_bypass

from callsheet.backends.kubernetes.client.errors import Unreachable
from callsheet.errors import CallsheetError

if TYPE_CHECKING:
    import httpx2

    from callsheet.backends.kubernetes.client.connect import Connection

OPENING = 15.0
"""Seconds until an answer must have begun."""
QUIET = 60.0
"""Seconds without a byte after which a log is asked for anew where a proxy stands in between: whether the other side of it
is still there cannot be told from a container that is silent."""
_PIECE = 1 << 18
_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A log may be silent for hours; the kernels ask each other meanwhile, so that a dead connection is found in a minute."""


class Answer:
    """An answer of the API server whose head has been read."""

    def __init__(self, code: int, reader: asyncio.StreamReader, body: Body) -> None:
        self.code = code
        self._reader = reader
        self._body = body

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body. Its end is told from a connection that broke: that is an `Unreachable`."""
        while not self._body.over:
            data = await self._reader.read(_PIECE)
            if not data:
                self._body.end()
                return
            piece = self._body.take(data)
            if piece:
                yield piece


class Body:
    """Takes HTTP's framing away from a body, many chunks at a time."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length")
        self._left = int(length) if length and not self._chunked else 0
        """Bytes to come of the chunk, or of the body that has a length."""
        self._counted = bool(length) or self._chunked
        self._rest = b""
        self.over = length == "0"

    def take(self, data: bytes) -> bytes:
        """The part of the body that these bytes hold."""
        if self._chunked:
            return self._unchunk(self._rest + data)
        if self._counted:
            self._left -= len(data)
            self.over = self._left <= 0
        return data

    def end(self) -> None:
        """The connection has ended."""
        if self._counted:
            raise ValueError("the connection ended in the middle of the answer")
        self.over = True

    def _unchunk(self, data: bytes) -> bytes:
        found, at, size, left = [], 0, len(data), self._left
        while at < size and not self.over:
            if not left:
                line = data.find(b"\r\n", at)
                if line < 0:
                    break
                left = int(data[at:line].partition(b";")[0], 16) + 2  # the chunk and its own line end
                at = line + 2
                if left < 2:
                    raise ValueError("the answer has a chunk of less than nothing")
                self.over = left == 2
            end = at + left
            found.append(data[at : max(at, end - 2)])
            at, left = min(end, size), max(0, end - size)
        self._rest, self._left = data[at:], left
        return b"".join(found)


@contextlib.asynccontextmanager
async def get(connection: Connection, request: httpx2.Request) -> AsyncIterator[Answer]:
    """Ask, with the user's credentials; whatever breaks on the way is an `Unreachable`."""
    writer = None
    try:
        async with asyncio.timeout(OPENING):
            answer, writer = await _authorized(connection, request)
        yield answer
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        said = str(error) or type(error).__name__
        raise Unreachable(f"the connection to the cluster broke: {said}", fix="try again") from None
    finally:
        if writer is not None:
            writer.transport.abort()


async def _authorized(connection: Connection, request: httpx2.Request) -> tuple[Answer, asyncio.StreamWriter]:
    """The answer; when the credentials were not accepted, to a second request with fresh ones, where there are any."""
    import httpx2

    flow = connection.http.auth.sync_auth_flow(request) if connection.http.auth else None
    if flow:
        request = await asyncio.to_thread(next, flow)
    while True:
        answer, writer = await _ask(connection, request)
        if answer.code != 401 or flow is None:
            return answer, writer
        refused = httpx2.Response(401, request=request)
        again = await asyncio.to_thread(_send, flow, refused)
        if again is None:
            return answer, writer
        writer.transport.abort()
        request = again


def _send(flow: object, response: httpx2.Response) -> httpx2.Request | None:
    try:
        found: httpx2.Request = flow.send(response)  # type: ignore[attr-defined]
    except StopIteration:
        return None
    return found


async def _ask(connection: Connection, request: httpx2.Request) -> tuple[Answer, asyncio.StreamWriter]:
    url = request.url
    secure = url.scheme == "https"
    reader, writer = await asyncio.open_connection(
        url.host,
        url.port or (443 if secure else 80),
        ssl=connection.verify if secure else None,
        server_hostname=connection.server_name if secure else None,
        limit=_PIECE,
    )
    try:
        _keep_alive(writer.get_extra_info("socket"))
        # No compression: it would be undone here for each line again.
        headers = dict(request.headers) | {"accept-encoding": "identity", "connection": "close"}
        lines = [f"GET {url.raw_path.decode('ascii')} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        head = await reader.readuntil(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        found = {name.strip().lower(): value.strip() for name, _, value in (r.partition(":") for r in rest)}
        return Answer(int(first.split()[1]), reader, Body(found)), writer
    except BaseException:
        writer.transport.abort()
        raise


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE.items():
        if hasattr(socket, name):  # not everywhere under these names
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def is_straight(connection: Connection, request: httpx2.Request) -> bool:
    """Whether no proxy of the user's may stand between us and the server."""
    if connection.proxy:
        return False
    proxies = getproxies()
    there = request.url.scheme in proxies or "all" in proxies
    return not there or bool(proxy_bypass(request.url.host))


async def in_thread(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """What an ordinary iterator yields, read by a thread that nobody waits for at the end."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
    room = threading.Semaphore(4)

    def put(item: bytes | Exception | None) -> None:
        room.acquire()
        loop.call_soon_threadsafe(queue.put_nowait, item)

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is left to be told
            try:
                for piece in pieces:
                    put(piece)
                put(None)
            except CallsheetError as error:
                put(error)

    threading.Thread(target=read, daemon=True).start()
    while (item := await queue.get()) is not None:
        room.release()
        if isinstance(item, Exception):
            raise item
        yield item
