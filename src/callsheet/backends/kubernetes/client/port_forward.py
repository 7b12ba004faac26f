"""Brings a replica's port to this machine: one websocket for each connection, each to the pod of that moment.

No tool is needed on this machine.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from callsheet.backends.kubernetes.client.api import Api, Object
from callsheet.backends.kubernetes.client.errors import Unreachable
from callsheet.errors import CallsheetError, UserError

if TYPE_CHECKING:
    from httpx2.websockets import WebSocketSession

_PROTOCOLS = ["v4.channel.k8s.io"]
_DATA = 0
_CHUNK = 32 * 1024
_LAST_ANSWER = 1.0
"""Seconds for the pod's answer after our side has finished; the container runtime gives no more either."""


class Forward:
    """One port of a replica, reachable on this machine until it is closed."""

    def __init__(
        self,
        api: Api,
        find: Callable[[], Object],
        remote: int,
        local: int | None,
        tell: Callable[[str], None],
    ) -> None:
        self._api = api
        self._find = find
        self.remote = remote
        self._tell = tell
        self._listener = _listen(local, remote)
        self.local = int(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop listening; connections that are open end with the program."""
        # Closing alone does not wake the thread that waits for the next connection.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._carry, args=(connection,), daemon=True).start()

    def _carry(self, connection: socket.socket) -> None:
        with connection:
            try:
                name = self._find()["metadata"]["name"]
                what = f"forward a port of the pod {name}"
                params = [("ports", str(self.remote))]
                with self._api.websocket(name, "portforward", params, _PROTOCOLS, what) as session:
                    over = threading.Event()
                    threading.Thread(target=_send, args=(connection, session, over), daemon=True).start()
                    try:
                        for data in _receive(session):
                            connection.sendall(data)
                    finally:
                        over.set()
            except CallsheetError as error:
                self._tell(error.message)
            except OSError:
                pass  # our side has had enough
            finally:
                # Closing alone would not tell the other side: our second thread still reads the socket.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


def _listen(local: int | None, remote: int) -> socket.socket:
    """The wanted port; without a wish the pod's own number if it is free, else any."""
    for port in (remote, 0) if local is None else (local,):
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError as error:
            if local is not None:
                raise UserError(
                    f"port {local} of this machine cannot be used: {error.strerror}", fix="choose another one"
                ) from None
    raise AssertionError("some port is free")


def _send(connection: socket.socket, session: WebSocketSession, over: threading.Event) -> None:
    from httpx2.websockets import HTTPXWSException
    from wsproto.utilities import LocalProtocolError

    with contextlib.suppress(OSError, HTTPXWSException, LocalProtocolError):
        while data := connection.recv(_CHUNK):
            session.send_bytes(bytes((_DATA,)) + data)
        # The protocol cannot say "I have finished, you may answer": the answer gets a moment, then all ends.
        if not over.wait(_LAST_ANSWER):
            session.close()


def ask(
    api: Api, pod: str, port: int, request: bytes, enough: Callable[[bytes], bool], patience: float
) -> bytes:
    """Send some bytes to a port of a pod; what it answers until that is `enough`, or all."""
    limit = time.monotonic() + patience
    what = f"ask port {port} of the pod {pod}"
    answer = b""
    with api.websocket(pod, "portforward", [("ports", str(port))], _PROTOCOLS, what) as session:
        session.send_bytes(bytes((_DATA,)) + request)
        for data in _receive(session, lambda: max(0.01, limit - time.monotonic())):
            answer += data
            if enough(answer):
                break
    return answer


def _receive(session: WebSocketSession, left: Callable[[], float | None] = lambda: None) -> Iterator[bytes]:
    """The pod's bytes, until the pod has sent all; `left` says how long to wait for the next."""
    from httpx2.websockets import WebSocketDisconnect

    begun: set[int] = set()
    try:
        while True:
            message = session.receive_bytes(timeout=left())
            channel, data = message[0], message[1:]
            if channel not in begun:
                begun.add(channel)  # the first message of a channel repeats the port
            elif channel == _DATA:
                yield data
            elif data:
                raise Unreachable(
                    f"the pod refused: {data.decode(errors='replace').strip()}", fix="try again"
                )
    except WebSocketDisconnect:
        return
