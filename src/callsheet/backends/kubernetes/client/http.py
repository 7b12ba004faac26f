"""HTTP to one API server: credentials, proxies, retries, and every failure as a sentence. The only module that knows aiohttp."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from callsheet.backends.kubernetes.client.credentials import Credentials
from callsheet.backends.kubernetes.client.errors import StreamTimeout, Unreachable, api_error, status_text
from callsheet.errors import UserError

T = TypeVar("T")
TIMEOUT: Final = 15.0
"""Seconds to connect, until a response begins, and between two chunks of it."""
_BUSY = (429, 503)
_TRIES = 5
_LONGEST_WAIT = 5
_CLOSING = 0.5
_BUFFER = 1 << 18
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A log may be silent for hours; the kernels probe each other meanwhile, so that a dead connection is found in a minute."""


class _ErrorResponse(Exception):
    """A response that is not a success, with its body: aiohttp drops the one of a refused WebSocket."""

    def __init__(self, status: int, body: bytes, retry_after: str) -> None:
        super().__init__(status)
        self.status, self.body, self.retry_after = status, body, retry_after


class HttpClient:
    """Sends requests with the user's credentials. Must be used from one event loop."""

    def __init__(
        self,
        server: str,
        credentials: Credentials,
        *,
        context: str = "",
        server_name: str = "",
        proxy: str = "",
    ) -> None:
        self.server = server.rstrip("/")
        self.context = context
        self.proxy = proxy
        self._credentials = credentials
        self._options: dict[str, Any] = {"server_hostname": server_name} if server_name else {}

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept": "application/json, */*"},
            proxy=self.proxy or None,
            raise_for_status=_raise_for_status,
            read_bufsize=_BUFFER,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT, sock_read=TIMEOUT),
        )

    async def close(self) -> None:
        """Close all connections."""
        if "_session" in self.__dict__:
            await self._session.close()

    async def json(
        self,
        method: str,
        path: str,
        *,
        what: str,
        body: object = None,
        params: Any = None,
        content: str = "application/json",
        decode: Callable[[bytes], T],
    ) -> T:
        """Send an object and decode what comes back; `what` completes the sentence "failed while trying to ..."."""
        data = b"" if body is None else msgspec.json.encode(body)

        def request(url: str, **options: Any) -> Awaitable[aiohttp.ClientResponse]:
            # As a file: aiohttp warns of large bodies in one piece.
            file = io.BytesIO(data) if data else None
            return self._session.request(
                method, url, data=file, params=params, allow_redirects=False, **options
            )

        with self._errors(what):
            response = await self._open(request, path, what, headers={"Content-Type": content})
            return decode(await response.read())

    async def stream(
        self, path: str, *, what: str, params: Any = None, silence: float | None
    ) -> AsyncGenerator[bytes]:
        """A response in chunks as they arrive; a `StreamTimeout` after that many silent seconds."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT, sock_read=silence)
        request = partial(self._session.request, "GET", params=params, timeout=timeout, allow_redirects=False)
        with self._errors(what):
            # Without compression: it would be undone for each line again.
            response = await self._open(request, path, what, headers={"Accept-Encoding": "identity"})
            try:
                async for chunk in response.content.iter_any():
                    yield chunk
            except aiohttp.ServerTimeoutError:
                raise StreamTimeout(f"the cluster sent nothing for {silence:g} s", fix="try again") from None
            finally:
                response.close()

    async def websocket(self, path: str, *, what: str, params: Any, protocol: str) -> WebSocket:
        """A two-way stream, to be closed by the caller."""
        timeout = aiohttp.ClientWSTimeout(ws_close=_CLOSING)
        request = partial(self._session.ws_connect, params=params, protocols=[protocol], timeout=timeout)
        with self._errors(what):
            return WebSocket(await self._open(request, path, what), what)

    async def _open(
        self,
        request: Callable[..., Awaitable[T]],
        path: str,
        what: str,
        headers: dict[str, str] | None = None,
    ) -> T:
        """Send until the response begins: with fresh credentials if they are not accepted, later if the server is busy."""
        used, renewed, tries = await self._credentials.get(), False, _TRIES
        while True:
            shown = (headers or {}) | used.headers
            try:
                async with asyncio.timeout(2 * TIMEOUT):
                    url = f"{self.server}/{path}"
                    return await request(url, ssl=used.tls, headers=shown, **self._options)
            except _ErrorResponse as error:
                tries -= 1
                if error.status == 401 and not renewed:
                    before, used, renewed = used, await self._credentials.get(used), True
                    if used is not before:
                        continue
                if error.status not in _BUSY or not tries or not error.retry_after.isdecimal():
                    raise api_error(error.status, _text(error), what=what, context=self.context) from None
                wait = min(int(error.retry_after), _LONGEST_WAIT)
            await asyncio.sleep(wait)  # a busy server rejected it unread, and says when to try again

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Failures of the connection as sentences."""
        place = f"the cluster{f' of the context {self.context!r}' if self.context else ''}"
        try:
            yield
        except aiohttp.ClientConnectorCertificateError:
            raise UserError(
                f"{place} at {self.server} presents a certificate that the kubeconfig does not trust",
                fix="get a new kubeconfig from the cluster's owner",
            ) from None
        except aiohttp.ClientConnectorError as error:
            raise Unreachable(
                f"{place} at {self.server} does not answer: {_cause(error.os_error)}",
                fix="check the network, the VPN, and that --context names the right cluster",
            ) from None
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
            cause = str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
            raise Unreachable(f"{place} failed while trying to {what}: {cause}", fix="try again") from None


class WebSocket:
    """Binary messages to and from a pod."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool], what: str) -> None:
        self._socket = socket
        self._what = what

    async def send(self, data: bytes) -> None:
        """Send one message."""
        try:
            await self._socket.send_bytes(data)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise self._broken(str(error)) from None

    async def receive(self) -> bytes | None:
        """The next message; None when either side has closed."""
        message = await self._socket.receive()
        if message.type is aiohttp.WSMsgType.BINARY:
            return bytes(message.data)
        if message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING):
            return None
        raise self._broken(str(message.data or "it was closed"))

    async def aclose(self) -> None:
        """Close it, without waiting long for the other side."""
        await self._socket.close()

    def _broken(self, cause: str) -> Unreachable:
        return Unreachable(f"the connection broke while trying to {self._what}: {cause}", fix="try again")


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    if response.status >= 300:
        body = await response.read()
        raise _ErrorResponse(response.status, body, response.headers.get("Retry-After", ""))


def _text(error: _ErrorResponse) -> str:
    """The server's words."""
    try:
        return status_text(msgspec.json.decode(error.body))
    except msgspec.DecodeError:
        return error.body.decode(errors="replace") or f"HTTP status {error.status}"


def _cause(error: OSError) -> str:
    system = isinstance(error.errno, int) and error.errno > 0 and not isinstance(error, ssl.SSLError)
    return os.strerror(error.errno or 0) if system else error.strerror or str(error)


def _socket(address: Any) -> socket.socket:
    """A socket whose peer is probed while nothing comes."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not on every system under these names
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
