"""Brings a replica's port to this machine: one websocket for each connection, each to the pod of that moment.

No tool is needed on this machine.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from callsheet.backends.kubernetes.api import Api, Object
from callsheet.backends.kubernetes.spdy import PROTOCOL, Tunnel
from callsheet.errors import CallsheetError, UserError

if TYPE_CHECKING:
    from httpx2.websockets import WebSocketSession

_CHUNK = 32 * 1024


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
                with self._api.websocket(name, "portforward", [], [PROTOCOL], what) as session:
                    tunnel = Tunnel(session.send_bytes)
                    tunnel.open(self.remote)
                    threading.Thread(target=_send, args=(connection, tunnel), daemon=True).start()
                    for data in tunnel.receive(_messages(session)):
                        connection.sendall(data)
                    # Closing alone would not tell the other side: our second thread still reads the socket.
                    connection.shutdown(socket.SHUT_RDWR)
                if tunnel.complaint:
                    self._tell(f"the pod refused: {tunnel.complaint.decode(errors='replace').strip()}")
            except OSError:
                return  # our side has had enough
            except CallsheetError as error:
                self._tell(error.message)


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


def _send(connection: socket.socket, tunnel: Tunnel) -> None:
    from httpx2.websockets import HTTPXWSException

    with contextlib.suppress(OSError, HTTPXWSException):
        while data := connection.recv(_CHUNK):
            tunnel.write(data)
        tunnel.finish()


def _messages(session: WebSocketSession) -> Iterator[bytes]:
    from httpx2.websockets import WebSocketDisconnect

    try:
        while True:
            yield session.receive_bytes(timeout=None)
    except WebSocketDisconnect:
        return
