"""ZeroMQ's sockets for a process: encrypted, with a doorkeeper that admits the run's own links alone."""

from __future__ import annotations

import logging
import os
import threading
import warnings
import weakref
from typing import Any

import zmq

from callsheet.runtime.keys import Keys
from callsheet.runtime.link.messages import LARGEST_HEADER, LARGEST_PAYLOAD
from callsheet.runtime.link.pages import keep_what_is_freed

log = logging.getLogger("callsheet.runtime")
_DOMAIN = b"callsheet"
_ADDRESS = "inproc://zeromq.zap.01"
_LEAVE = b"leave"
_BUFFER = 1 << 20
"""Bytes that the system holds for each direction of a connection: it hands large arrays on in fewer pieces than with
buffers that grow by themselves, and what a slow reader's connections hold is bounded."""
_THREADS = min(4, os.cpu_count() or 1)
"""That carry, encrypt and decrypt: many writers of one reader are not kept waiting by one thread."""
_HEARTBEAT = 1000
_PATIENCE = 4000
"""Milliseconds without a sign of life after which a connection is given up."""


class Doorkeeper(threading.Thread):
    """Answers ZeroMQ's question whether a key may come in: CURVE alone lets any client speak to a server it knows."""

    def __init__(self, context: zmq.Context[Any], allowed: bytes) -> None:
        super().__init__(name="callsheet-doorkeeper", daemon=True)
        self._allowed = allowed
        self.refused = 0
        self._socket = context.socket(zmq.REP)
        self._socket.linger = 0
        self._socket.bind(_ADDRESS)

    def run(self) -> None:
        """Answer until the context ends."""
        try:
            while True:
                parts = self._socket.recv_multipart()
                if parts == [_LEAVE]:
                    break
                version, request, _, address, _, mechanism, *credentials = parts
                known = mechanism == b"CURVE" and credentials == [self._allowed]
                if not known:
                    self.refused += 1
                    if self.refused == 1:
                        log.warning(
                            "refused %s: it does not have this run's key", address.decode(errors="replace")
                        )
                status = [b"200", b"OK"] if known else [b"400", b"not a key of this run"]
                self._socket.send_multipart([version, request, *status, b"", b""])
        except (zmq.ZMQError, ValueError):
            log.exception("the doorkeeper went away: nobody new is admitted")
        finally:
            self._socket.close(0)

    def leave(self, context: zmq.Context[Any]) -> None:
        """End the thread."""
        with context.socket(zmq.REQ) as speaker:
            speaker.linger = 1000
            speaker.connect(_ADDRESS)
            speaker.send(_LEAVE)
            self.join(5)


class _Open:
    """What `Sockets` has open. It stands apart so that it is whole when `Sockets` is dropped without being closed: by
    then weak references, which ZeroMQ's own context has of its sockets, are cleared, and it would wait for ever."""

    def __init__(self) -> None:
        self.context: zmq.Context[Any] | None = None
        self.doorkeeper: Doorkeeper | None = None
        self.sockets: list[zmq.Socket[Any]] = []

    def close(self) -> None:
        if self.context is not None:
            if self.doorkeeper is not None:
                self.doorkeeper.leave(self.context)
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
        return self._open.doorkeeper.refused if self._open.doorkeeper else 0

    def listener(self, address: str) -> zmq.Socket[Any]:
        """A socket for an endpoint that is bound."""
        made = self._socket(zmq.ROUTER, address)
        made.router_mandatory = True
        if self._keys:
            public, secret = self._keys.listener
            with self._lock:
                if self._open.doorkeeper is None:
                    from zmq.utils import z85

                    self._open.doorkeeper = Doorkeeper(self._the_context(), z85.decode(self._keys.link[0]))
                    self._open.doorkeeper.start()
            made.curve_server = True
            made.curve_publickey, made.curve_secretkey = public, secret
            made.zap_domain = _DOMAIN
        return made

    def link(self, address: str) -> zmq.Socket[Any]:
        """A socket for an endpoint that is connected to."""
        made = self._socket(zmq.DEALER, address)
        made.reconnect_ivl = 50
        made.reconnect_ivl_max = 500
        if self._keys:
            made.curve_publickey, made.curve_secretkey = self._keys.link
            made.curve_serverkey = self._keys.listener[0]
        return made

    def _the_context(self) -> zmq.Context[Any]:
        if self._open.context is None:
            keep_what_is_freed()
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
        made.maxmsgsize = LARGEST_PAYLOAD + LARGEST_HEADER
        made.heartbeat_ivl, made.heartbeat_timeout = _HEARTBEAT, _PATIENCE
        made.handshake_ivl = _PATIENCE
        return made

    def close(self) -> None:
        """Close all sockets that are left."""
        if self._dropped.detach() is not None:
            self._open.close()
