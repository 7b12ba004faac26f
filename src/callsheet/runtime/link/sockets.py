"""Creates the ZeroMQ sockets of a process: encrypted, and restricted to links of the same run."""

from __future__ import annotations

import logging
import os
import threading
import warnings
import weakref
from typing import Any

import zmq

from callsheet.descriptors import raise_descriptor_limit
from callsheet.errors import UserError
from callsheet.runtime.keys import Keys
from callsheet.runtime.link.huge_pages import keep_freed_memory
from callsheet.runtime.link.protocol import MAX_PART_BYTES
from callsheet.runtime.link.zap_authenticator import ZapAuthenticator

log = logging.getLogger("callsheet.runtime")
_ZAP_DOMAIN = b"callsheet"
_SOCKET_BUFFER = 1 << 20
"""Bytes of kernel buffer per direction. Fixed and large: big arrays need fewer system calls than with autotuned
buffers, and a slow reader's memory stays bounded."""
_IO_THREADS = min(4, os.cpu_count() or 1)
"""Threads that send, receive, encrypt and decrypt, so that one thread is no bottleneck for a reader with many
writers."""
_CURVE_OVERHEAD = 1024
"""More than the bytes that encryption adds to a part."""
_HEARTBEAT = 1000
_HEARTBEAT_TIMEOUT = 4000
"""Milliseconds without a heartbeat after which a connection counts as lost."""
_CONNECT_TIMEOUT = 3000
"""Milliseconds for a TCP connect; then a fresh SYN is sent, which may get through."""
_HANDSHAKE_TIMEOUT = 15_000
"""Milliseconds for the handshake: when a thousand actors join at once, it takes a while."""
_BACKLOG = 4096
"""Connections the kernel queues until ZeroMQ accepts them."""


class _OpenSockets:
    """The open sockets. A separate object, so that it is still intact when a `SocketFactory` is garbage-collected
    without being closed: by then ZeroMQ's weak references to its sockets are gone, and its context would hang."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] | None = None
        self.authenticator: ZapAuthenticator | None = None
        self.sockets: list[zmq.Socket[Any]] = []

    def close(self) -> None:
        if self.context is not None:
            if self.authenticator is not None:
                self.authenticator.stop()
            self.context.destroy(0)

    def on_dropped(self) -> None:
        """Nobody closed it. Garbage collection must not block, so a thread closes it."""
        if self.context is not None:
            threading.Thread(target=self.close, name="callsheet-closing", daemon=True).start()
            warnings.warn(
                "a Context was garbage-collected while open: use `with`, or call close()", ResourceWarning, 2
            )


class SocketFactory:
    """Creates the sockets of one process. Without keys nothing is encrypted."""

    def __init__(self, keys: Keys | None) -> None:
        self._keys = keys
        self._open = _OpenSockets()
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, self._open.on_dropped)
        self._finalizer.atexit = False  # ZeroMQ cleans up on its own at interpreter exit

    @property
    def refused(self) -> int:
        """Connections refused because they did not have the key."""
        return self._open.authenticator.refused if self._open.authenticator else 0

    def listener(self, endpoint: str, address: str) -> zmq.Socket[Any]:
        """A socket that listens for an endpoint."""
        sock = self._socket(zmq.ROUTER, address)
        sock.router_mandatory = True
        sock.backlog = _BACKLOG
        with self._lock:
            if self._open.authenticator is None:
                self._open.authenticator = self._start_authenticator()
            self._open.authenticator.watch(sock)
        if self._keys:
            sock.curve_server = True
            sock.curve_publickey, sock.curve_secretkey = self._keys.listener
            sock.zap_domain = _ZAP_DOMAIN
        try:
            sock.bind(f"tcp://{address}")
        except zmq.ZMQError as error:
            sock.close(0)
            raise UserError(
                f"endpoint {endpoint!r} cannot listen on {address}: {error.strerror}",
                fix="another process uses that port; stop it or choose another port"
                if error.errno == zmq.EADDRINUSE
                else "write host:port, with an address of this machine",
            ) from None
        return sock

    def _start_authenticator(self) -> ZapAuthenticator:
        from zmq.utils import z85

        client_key = z85.decode(self._keys.link[0]) if self._keys else None
        authenticator = ZapAuthenticator(self._zmq_context(), client_key)
        authenticator.start()
        return authenticator

    def link(self, address: str) -> zmq.Socket[Any]:
        """A socket to connect to an endpoint."""
        sock = self._socket(zmq.DEALER, address)
        sock.reconnect_ivl = 50
        sock.reconnect_ivl_max = 500
        sock.connect_timeout = _CONNECT_TIMEOUT
        # Only links send heartbeats, and they tell the listener when to expect the next one: ZeroMQ 4.3.5 aborts the
        # process if a connection breaks whose messages were not read for a while and a heartbeat is due on it. So
        # listeners send none, and links have no receive limit; the listener's send limit bounds it.
        sock.heartbeat_ivl = _HEARTBEAT
        sock.heartbeat_timeout = sock.heartbeat_ttl = _HEARTBEAT_TIMEOUT
        sock.rcvhwm = 0
        if self._keys:
            sock.curve_publickey, sock.curve_secretkey = self._keys.link
            sock.curve_serverkey = self._keys.listener[0]
        return sock

    def _zmq_context(self) -> zmq.Context[Any]:
        if self._open.context is None:
            keep_freed_memory()
            raise_descriptor_limit()
            self._open.context = zmq.Context(_IO_THREADS)
            self._open.context.max_sockets = 4096
        return self._open.context

    def _socket(self, kind: int, address: str) -> zmq.Socket[Any]:
        with self._lock:
            sock: zmq.Socket[Any] = self._zmq_context().socket(kind)
            self._open.sockets = [other for other in self._open.sockets if not other.closed] + [sock]
        sock.linger = 0
        sock.ipv6 = address.startswith("[")
        sock.sndhwm = sock.rcvhwm = 1000  # messages; the blocks in flight bound their bytes
        sock.sndbuf = sock.rcvbuf = _SOCKET_BUFFER
        sock.maxmsgsize = MAX_PART_BYTES + _CURVE_OVERHEAD
        sock.handshake_ivl = _HANDSHAKE_TIMEOUT
        return sock

    def close(self) -> None:
        """Close all sockets."""
        if self._finalizer.detach() is not None:
            self._open.close()
