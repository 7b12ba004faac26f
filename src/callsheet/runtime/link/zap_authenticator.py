"""The ZAP authenticator: a thread that checks clients' keys for ZeroMQ and limits unauthenticated connections.

CURVE alone lets in any client that knows the server's public key, so ZeroMQ asks this thread (its ZAP protocol).
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import resource
import struct
import threading
from typing import Any, Final

import zmq

from callsheet.runtime.link.half_open import HalfOpenConnections

log = logging.getLogger("callsheet.runtime")
_ZAP: Final = "inproc://zeromq.zap.01"
_EVENTS: Final = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED
_EVENT: Final = struct.Struct("=HI")
_TICK_MS: Final = 100
"""Milliseconds between two checks of half-open connections."""
_MAX_HALF_OPEN: Final = 1024
_ENCRYPTED_HANDSHAKE: Final = 270
"""Bytes we have sent when only the last message of CURVE's handshake is missing: 64 of greeting, 170 of welcome.
After it: 300."""
_PLAIN_HANDSHAKE: Final = 70


def _half_open_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_HALF_OPEN if soft == resource.RLIM_INFINITY else max(16, min(_MAX_HALF_OPEN, soft // 4))


class ZapAuthenticator(threading.Thread):
    """Serves all listeners of a process. Without a key to check, it only limits half-open connections."""

    def __init__(self, context: zmq.Context[Any], client_key: bytes | None) -> None:
        super().__init__(name="callsheet-zap", daemon=True)
        self._context = context
        self._client_key = client_key
        self.refused = 0
        """Connections without the run's key."""
        self._zap = context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind(_ZAP)
        self._commands: queue.SimpleQueue[zmq.Socket[Any] | None] = queue.SimpleQueue()
        self._wake_fd, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = zmq.Poller()
        self._half_open: dict[zmq.Socket[Any], HalfOpenConnections] = {}
        self._monitors = 0

    def watch(self, listener: zmq.Socket[Any]) -> None:
        """Track the connections of a listener; call it before `bind`."""
        address = f"inproc://callsheet-monitor-{self._monitors}"
        self._monitors += 1
        listener.monitor(address, int(_EVENTS))
        events = self._context.socket(zmq.PAIR)
        events.linger = 0
        events.rcvhwm = 0  # with a limit, ZeroMQ's own threads would block
        events.connect(address)
        self._send_command(events)

    def stop(self) -> None:
        """End the thread."""
        self._send_command(None)
        self.join(5)

    def _send_command(self, what: zmq.Socket[Any] | None) -> None:
        self._commands.put(what)
        with contextlib.suppress(OSError):  # the thread has ended
            os.write(self._waker, b"x")

    def run(self) -> None:
        """Serve until `stop`."""
        self._poll.register(self._zap, zmq.POLLIN)
        self._poll.register(self._wake_fd, zmq.POLLIN)
        try:
            while self._step():
                pass
        except (zmq.ZMQError, ValueError, OSError):
            log.exception("the ZAP authenticator thread ended: no new connections are accepted")
        finally:
            for sock in (self._zap, *self._half_open):
                sock.close(0)
            waker, self._waker = self._waker, -1
            os.close(waker)
            os.close(self._wake_fd)

    def _step(self) -> bool:
        waiting = any(map(len, self._half_open.values()))
        ready = self._poll.poll(_TICK_MS if waiting else None)
        for sock, _ in ready:
            if sock is self._zap:
                self._answer_zap()
            elif isinstance(sock, int):
                os.read(sock, 4096)
                while not self._commands.empty():
                    if (events := self._commands.get()) is None:
                        return False
                    done = _ENCRYPTED_HANDSHAKE if self._client_key else _PLAIN_HANDSHAKE
                    self._half_open[events] = HalfOpenConnections(done, _half_open_limit())
                    self._poll.register(events, zmq.POLLIN)
            else:
                self._read_events(sock)
        for half_open in self._half_open.values():
            if len(half_open) and (not ready or half_open.too_many):
                half_open.enforce()
        return True

    def _answer_zap(self) -> None:
        version, request, _, address, _, mechanism, *credentials = self._zap.recv_multipart()
        authorized = (
            self._client_key is not None and mechanism == b"CURVE" and credentials == [self._client_key]
        )
        if not authorized:
            self.refused += 1
            if self.refused == 1:
                log.warning("refused %s: it does not have this run's key", address.decode(errors="replace"))
        status = [b"200", b"OK"] if authorized else [b"400", b"not a key of this run"]
        self._zap.send_multipart([version, request, *status, b"", b""])

    def _read_events(self, events: zmq.Socket[Any]) -> None:
        half_open = self._half_open[events]
        for _ in range(_MAX_HALF_OPEN):
            try:
                head, endpoint = events.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event, value = _EVENT.unpack(head)
            if event == zmq.EVENT_ACCEPTED:
                half_open.on_accepted(value, int(endpoint.rpartition(b":")[2] or 0))
            elif event == zmq.EVENT_DISCONNECTED:
                half_open.on_closed(value)
            else:
                self._poll.unregister(events)
                del self._half_open[events]
                events.close(0)
                return
