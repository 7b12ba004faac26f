"""Brings a replica's port to this machine: one WebSocket for each connection, each to the pod of that moment.

No tool is needed on this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from callsheet.backends.kubernetes.client.api import Api, Object
from callsheet.backends.kubernetes.client.errors import Unreachable
from callsheet.errors import CallsheetError, UserError

if TYPE_CHECKING:
    from callsheet.backends.kubernetes.client.http import WebSocket

_PROTOCOL = "v4.channel.k8s.io"
_DATA = b"\0"
_CHUNK = 32 * 1024
_LAST_ANSWER = 1.0
"""Seconds for the pod's answer after our side has finished; the container runtime gives no more either."""


class Forward:
    """One port of a replica, reachable on this machine until it is closed."""

    def __init__(
        self,
        api: Api,
        find_pod: Callable[[], Object],
        remote: int,
        local: int | None,
        report: Callable[[str], None],
    ) -> None:
        self._api = api
        self._find_pod = find_pod
        self.remote = remote
        self._report = report
        listener = _listen(local, remote)
        self.local = int(listener.getsockname()[1])
        self._server = api.run(asyncio.start_server(self._forward, sock=listener))

    def close(self) -> None:
        """Stop listening; connections that are open end with the program."""

        async def close() -> None:
            self._server.close()

        self._api.run(close())

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            pod = (await asyncio.to_thread(self._find_pod))["metadata"]["name"]
            async with contextlib.aclosing(await _open(self._api, pod, self.remote)) as stream:
                sending = asyncio.create_task(_send(reader, stream))
                try:
                    async for data in _receive(stream):
                        writer.write(data)
                        await writer.drain()
                finally:
                    sending.cancel()
        except CallsheetError as error:
            self._report(error.message)
        except OSError:
            pass  # our side has closed
        finally:
            writer.close()


async def _send(reader: asyncio.StreamReader, stream: WebSocket) -> None:
    with contextlib.suppress(OSError, Unreachable):
        while data := await reader.read(_CHUNK):
            await stream.send(_DATA + data)
        # The protocol cannot say "I have finished, you may answer": the answer gets a moment, then all ends.
        await asyncio.sleep(_LAST_ANSWER)
        await stream.aclose()


def _listen(local: int | None, remote: int) -> socket.socket:
    """The chosen port; if none was chosen, the pod's own number if it is free, else any."""
    for port in (remote, 0) if local is None else (local,):
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError as error:
            if local is not None:
                raise UserError(
                    f"port {local} of this machine cannot be used: {error.strerror}", fix="choose another one"
                ) from None
    raise AssertionError("some port is free")


def query_port(
    api: Api, pod: str, port: int, request: bytes, is_whole: Callable[[bytes], bool], timeout: float
) -> bytes:
    """Send some bytes to a port of a pod; what it answers until that is whole, or all."""

    async def query() -> bytes:
        answer = b""
        async with asyncio.timeout(timeout), contextlib.aclosing(await _open(api, pod, port)) as stream:
            await stream.send(_DATA + request)
            async for data in _receive(stream):
                answer += data
                if is_whole(answer):
                    break
        return answer

    return api.run(query())


async def _open(api: Api, pod: str, port: int) -> WebSocket:
    what = f"forward port {port} of the pod {pod}"
    return await api.client.websocket(pod, "portforward", {"ports": port}, _PROTOCOL, what)


async def _receive(stream: WebSocket) -> AsyncGenerator[bytes]:
    """The pod's bytes, until the pod has sent all."""
    begun: set[int] = set()
    while message := await stream.receive():
        channel, data = message[0], message[1:]
        if channel not in begun:
            begun.add(channel)  # the first message of a channel repeats the port
        elif channel == _DATA[0]:
            yield data
        elif data:
            raise Unreachable(f"the pod refused: {data.decode(errors='replace').strip()}", fix="try again")
