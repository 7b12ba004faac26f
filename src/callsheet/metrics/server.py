"""Serves ``/metrics`` and ``/healthz`` from its own threads, without making the program wait.

A minimal HTTP server, because importing `http.server` takes longer than the rest of this package. Connections, request
size and time are limited, so that strangers cannot use up the process.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from callsheet.errors import UserError
from callsheet.metrics import prometheus
from callsheet.metrics.instruments import Counter
from callsheet.metrics.targets import split_address

MAX_CONNECTIONS: Final = 8
"""More at the same time get 503."""
MAX_REQUEST_BYTES: Final = 16 * 1024
REQUEST_TIMEOUT: Final = 5.0
"""Seconds for a request and its response."""

Page = Callable[[str], str]
"""The page for a content type: `prometheus.TEXT`, `prometheus.OPEN_METRICS` or `prometheus.JSON`."""


class Server:
    """Serves until it is closed."""

    def __init__(self, address: str, page: Page) -> None:
        host, port = split_address(address)
        try:
            self._listener = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=16
            )
        except OSError as error:
            raise UserError(
                f"cannot serve metrics on {address}: {error.strerror}",
                fix="let another process of this container serve them, or bind the endpoint to another port",
            ) from None
        self._page = page
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self.scrapes = Counter()
        self.refused = Counter()
        self._thread = threading.Thread(target=self._serve, name="callsheet-metrics-port", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where it listens, with the actual port."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Stop listening. Responses in progress finish or time out."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone does not wake the waiting thread
        self._listener.close()
        self._thread.join(REQUEST_TIMEOUT)

    def abandon(self) -> None:
        """In a forked child: close the parent's port."""
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._listener.fileno() < 0 or not _is_listening(self._listener):
                    return
                time.sleep(0.1)  # out of descriptors: nothing notifies us when there are some again
                continue
            if not self._slots.acquire(blocking=False):
                self.refused.add()
                _refuse(connection)
                continue
            try:
                threading.Thread(target=self._respond, args=(connection,), daemon=True).start()
            except RuntimeError:  # no more threads, or the interpreter is shutting down
                self._slots.release()
                connection.close()

    def _respond(self, connection: socket.socket) -> None:
        try:
            with connection, contextlib.suppress(OSError):
                head = _read_head(connection, time.monotonic() + REQUEST_TIMEOUT)
                if head is None:
                    return
                connection.sendall(self._response(head))
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
        finally:
            self._slots.release()

    def _response(self, head: bytes) -> bytes:
        first, _, rest = head.decode("latin-1").partition("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _message("400 Bad Request", "this is not an HTTP/1.1 request\n")
        method, target, _ = words
        path = target.partition("?")[0]
        if path not in ("/metrics", "/healthz"):
            return _message("404 Not Found", "try /metrics or /healthz\n")
        if method != "GET":
            return _message("405 Method Not Allowed", "only GET is supported\n", extra="Allow: GET\r\n")
        if path == "/healthz":
            return _message("200 OK", "ok\n")
        kind = _wanted(rest)
        try:
            page = self._page(kind)
        except Exception:  # noqa: BLE001 - report any error to the client
            return _message("500 Internal Server Error", "the metrics could not be rendered\n")
        self.scrapes.add()
        return _message("200 OK", page, kind)


def _is_listening(listener: socket.socket) -> bool:
    try:
        return bool(listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def _read_head(connection: socket.socket, limit: float) -> bytes | None:
    """The request's head; None if it does not arrive in time or is too long."""
    data = b""
    while b"\r\n\r\n" not in data:
        left = limit - time.monotonic()
        if left <= 0 or len(data) > MAX_REQUEST_BYTES:
            return None
        connection.settimeout(left)
        piece = connection.recv(4096)
        if not piece:
            return None
        data += piece
    connection.settimeout(max(0.1, limit - time.monotonic()))
    return data.partition(b"\r\n\r\n")[0]


def _wanted(headers: str) -> str:
    """The content type that the Accept header prefers; plain text by default."""
    for line in headers.split("\r\n"):
        name, _, value = line.partition(":")
        if name.strip().lower() == "accept":
            return max(
                (prometheus.TEXT, prometheus.OPEN_METRICS, prometheus.JSON),
                key=lambda kind: _weight(kind, value),
            )
    return prometheus.TEXT


def _weight(kind: str, accept: str) -> float:
    name = kind.partition(";")[0]
    best = 0.0
    for entry in accept.split(","):
        media, *parameters = (part.strip().lower() for part in entry.split(";"))
        weight = next((p.removeprefix("q=") for p in parameters if p.startswith("q=")), "1")
        if media == name:
            with contextlib.suppress(ValueError):
                best = max(best, float(weight))
    return best


def _message(status: str, body: str, kind: str = "text/plain; charset=utf-8", extra: str = "") -> bytes:
    data = body.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{extra}Connection: close\r\n\r\n"
    return head.encode("latin-1") + data


def _refuse(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(0.1)
        connection.sendall(
            _message("503 Service Unavailable", "too many connections\n", extra="Retry-After: 1\r\n")
        )
