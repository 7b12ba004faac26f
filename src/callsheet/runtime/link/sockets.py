"""ZeroMQ's sockets for a process: encrypted, and open to the run's own links alone."""

from __future__ import annotations

import logging
import os
import threading
import warnings
import weakref
from typing import Any

import zmq

from callsheet.descriptors import raise_descriptor_limit
from callsheet.runtime.keys import Keys
from callsheet.runtime.link.huge_pages import keep_what_is_freed
from callsheet.runtime.link.protocol import LARGEST_PART
from callsheet.runtime.link.zap_authenticator import Admission

log = logging.getLogger("callsheet.runtime")
_DOMAIN = b"callsheet"
_BUFFER = 1 << 20
"""Bytes that the system holds for each direction of a connection: it hands large arrays on in fewer pieces than with
buffers that grow by themselves, and what a slow reader's connections hold is bounded."""
_THREADS = min(4, os.cpu_count() or 1)
"""That carry, encrypt and decrypt: many writers of one reader are not kept waiting by one thread."""
_ENVELOPE = 1024
"""Bytes that encryption adds to a part, and more than enough."""
_HEARTBEAT = 1000
_PATIENCE = 4000
"""Milliseconds without a sign of life after which a connection is given up."""
_CONNECT = 3000
"""Milliseconds that the system has for a connection; then it is asked anew, by a packet that may get through."""
_HANDSHAKE = 15_000
"""Milliseconds that both sides have to shake hands: when a thousand actors join at once, that takes a while."""
_BACKLOG = 4096
"""Connections that the system may hold until ZeroMQ accepts them."""


class _Open:
    """What `Sockets` has open. It stands apart so that it is whole when `Sockets` is dropped without being closed: by
    then weak references, which ZeroMQ's own context has of its sockets, are cleared, and it would wait for ever."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] | None = None
        self.admission: Admission | None = None
        self.sockets: list[zmq.Socket[Any]] = []

    def close(self) -> None:
        if self.context is not None:
            if self.admission is not None:
                self.admission.leave()
            self.context.destroy(0)

    def dropped(self) -> None:
        """Nobody closed it, and nobody can any more. A collector of garbage must not wait, so a thread does."""
        if self.context is not None:
            threading.Thread(target=self.close, name="callsheet-closing", daemon=True).start()
            warnings.warn(
                "a Context was dropped while it was open: use `with`, or close() it", ResourceWarning, 2
            )


class Sockets:
    """Makes the sockets of one process. Without keys nothing is encrypted."""

    def __init__(self, keys: Keys | None) -> None:
        self._keys = keys
        self._open = _Open()
        self._lock = threading.Lock()
        self._dropped = weakref.finalize(self, self._open.dropped)
        self._dropped.atexit = False  # ZeroMQ knows what to do at the end of a process

    @property
    def refused(self) -> int:
        """How many were turned away for want of the key."""
        return self._open.admission.refused if self._open.admission else 0

    def listener(self, address: str) -> zmq.Socket[Any]:
        """A socket for an endpoint that is bound."""
        made = self._socket(zmq.ROUTER, address)
        made.router_mandatory = True
        made.backlog = _BACKLOG
        with self._lock:
            if self._open.admission is None:
                self._open.admission = self._admission()
            self._open.admission.watch(made)
        if self._keys:
            made.curve_server = True
            made.curve_publickey, made.curve_secretkey = self._keys.listener
            made.zap_domain = _DOMAIN
        return made

    def _admission(self) -> Admission:
        from zmq.utils import z85

        made = Admission(self._the_context(), z85.decode(self._keys.link[0]) if self._keys else None)
        made.start()
        return made

    def link(self, address: str) -> zmq.Socket[Any]:
        """A socket for an endpoint that is connected to."""
        made = self._socket(zmq.DEALER, address)
        made.reconnect_ivl = 50
        made.reconnect_ivl_max = 500
        made.connect_timeout = _CONNECT
        # Only this side asks for signs of life, and tells the listener when to expect the next: ZeroMQ 4.3.5 ends the whole
        # process when a connection breaks whose messages nobody has taken for a while and a sign of life is due on it. So
        # listeners send none, and links have no limit at which they stop reading; their listener has one for what it sends.
        made.heartbeat_ivl, made.heartbeat_timeout, made.heartbeat_ttl = _HEARTBEAT, _PATIENCE, _PATIENCE
        made.rcvhwm = 0
        if self._keys:
            made.curve_publickey, made.curve_secretkey = self._keys.link
            made.curve_serverkey = self._keys.listener[0]
        return made

    def _the_context(self) -> zmq.Context[Any]:
        if self._open.context is None:
            keep_what_is_freed()
            raise_descriptor_limit()
            self._open.context = zmq.Context(_THREADS)
            self._open.context.max_sockets = 4096
        return self._open.context

    def _socket(self, kind: int, address: str) -> zmq.Socket[Any]:
        with self._lock:
            made: zmq.Socket[Any] = self._the_context().socket(kind)
            self._open.sockets = [one for one in self._open.sockets if not one.closed] + [made]
        made.linger = 0
        made.ipv6 = address.startswith("[")
        made.sndhwm = made.rcvhwm = 1000  # messages; the blocks in flight bound their bytes
        made.sndbuf = made.rcvbuf = _BUFFER
        made.maxmsgsize = LARGEST_PART + _ENVELOPE
        made.handshake_ivl = _HANDSHAKE
        return made

    def close(self) -> None:
        """Close all sockets that are left."""
        if self._dropped.detach() is not None:
            self._open.close()
