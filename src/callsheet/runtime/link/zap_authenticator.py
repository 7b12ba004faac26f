"""Who comes in over the network: a thread that answers ZeroMQ's question about a client's key, and that keeps the
connections few which have not come so far.

CURVE alone lets any client speak to a server whose public key it knows, so ZeroMQ is told to ask (its ZAP protocol).
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

from callsheet.runtime.link.half_open import HalfOpen

log = logging.getLogger("callsheet.runtime")
_ZAP: Final = "inproc://zeromq.zap.01"
_EVENTS: Final = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED
_EVENT: Final = struct.Struct("=HI")
_TICK: Final = 100
"""Milliseconds between two looks at connections that have not done their handshake."""
_MOST_HALF_OPEN: Final = 1024
_ENCRYPTED_HANDSHAKE: Final = 270
"""Bytes that we have sent before the last word of CURVE's handshake: 64 of greeting, 170 of welcome; with it, 300."""
_PLAIN_HANDSHAKE: Final = 70


def _most_half_open() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_HALF_OPEN if soft == resource.RLIM_INFINITY else max(16, min(_MOST_HALF_OPEN, soft // 4))


class Admission(threading.Thread):
    """For all listeners of a process. Without a key to ask for, it only counts connections."""

    def __init__(self, context: zmq.Context[Any], allowed: bytes | None) -> None:
        super().__init__(name="callsheet-admission", daemon=True)
        self._context = context
        self._allowed = allowed
        self.refused = 0
        """How many did not have the key."""
        self._zap = context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind(_ZAP)
        self._orders: queue.SimpleQueue[zmq.Socket[Any] | None] = queue.SimpleQueue()
        self._wake_fd, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = zmq.Poller()
        self._half_open: dict[zmq.Socket[Any], HalfOpen] = {}
        self._watched = 0

    def watch(self, listener: zmq.Socket[Any]) -> None:
        """Count the connections of a listener, from before it is bound until it is closed."""
        address = f"inproc://callsheet-admission-{self._watched}"
        self._watched += 1
        listener.monitor(address, int(_EVENTS))
        events = self._context.socket(zmq.PAIR)
        events.linger = 0
        events.rcvhwm = 0  # ZeroMQ's own threads would wait for room
        events.connect(address)
        self._order(events)

    def leave(self) -> None:
        """End the thread."""
        self._order(None)
        self.join(5)

    def _order(self, what: zmq.Socket[Any] | None) -> None:
        self._orders.put(what)
        with contextlib.suppress(OSError):  # it has ended
            os.write(self._waker, b"x")

    def run(self) -> None:
        """Answer until told to leave."""
        self._poll.register(self._zap, zmq.POLLIN)
        self._poll.register(self._wake_fd, zmq.POLLIN)
        try:
            while self._step():
                pass
        except (zmq.ZMQError, ValueError, OSError):
            log.exception("the thread that admits connections ended: nobody new is admitted")
        finally:
            for one in (self._zap, *self._half_open):
                one.close(0)
            waker, self._waker = self._waker, -1
            os.close(waker)
            os.close(self._wake_fd)

    def _step(self) -> bool:
        waiting = any(len(one) for one in self._half_open.values())
        ready = self._poll.poll(_TICK if waiting else None)
        for one, _ in ready:
            if one is self._zap:
                self._answer()
            elif isinstance(one, int):
                os.read(one, 4096)
                while not self._orders.empty():
                    if (events := self._orders.get()) is None:
                        return False
                    done = _ENCRYPTED_HANDSHAKE if self._allowed else _PLAIN_HANDSHAKE
                    self._half_open[events] = HalfOpen(done, _most_half_open())
                    self._poll.register(events, zmq.POLLIN)
            else:
                self._take_events(one)
        for half_open in self._half_open.values():
            if len(half_open) and (not ready or half_open.too_many):
                half_open.look()
        return True

    def _answer(self) -> None:
        version, request, _, address, _, mechanism, *credentials = self._zap.recv_multipart()
        known = self._allowed is not None and mechanism == b"CURVE" and credentials == [self._allowed]
        if not known:
            self.refused += 1
            if self.refused == 1:
                log.warning("refused %s: it does not have this run's key", address.decode(errors="replace"))
        status = [b"200", b"OK"] if known else [b"400", b"not a key of this run"]
        self._zap.send_multipart([version, request, *status, b"", b""])

    def _take_events(self, events: zmq.Socket[Any]) -> None:
        half_open = self._half_open[events]
        for _ in range(_MOST_HALF_OPEN):
            try:
                head, endpoint = events.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            event, value = _EVENT.unpack(head)
            if event == zmq.EVENT_ACCEPTED:
                half_open.accepted(value, int(endpoint.rpartition(b":")[2] or 0))
            elif event == zmq.EVENT_DISCONNECTED:
                half_open.gone(value)
            else:
                self._poll.unregister(events)
                del self._half_open[events]
                events.close(0)
                return
