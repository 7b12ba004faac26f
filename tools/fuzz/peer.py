"""A peer that sends whatever it is told to, by the network and by memory: what a hostile member of a run can do."""

from __future__ import annotations

import array
import fcntl
import os
import socket
import time
from typing import Any, Final

import zmq

from callsheet.runtime.context import Context
from callsheet.runtime.keys import Keys
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.shm_handshake import ShmHandshakeClient, host_identity

ENDPOINT: Final = "e"
KEY: Final = b"k" * 32
RUN: Final = "fuzz"
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def context(address: str = "127.0.0.1:0", *, plaintext: bool = True, **options: Any) -> Context:
    """A process of a run that does not encrypt."""
    return Context(addresses={ENDPOINT: address}, keys=Keys(KEY), plaintext=plaintext, run=RUN, **options)


def sealed(size: int, content: bytes = b"") -> int:
    """A block of shared memory as peers hand it over: its descriptor."""
    fd = os.memfd_create("fuzz", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    os.pwrite(fd, content, 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


class Peer:
    """One connection. Nothing that it sends is checked."""

    def __init__(self, address: str, shared: Context | None = None, *, plaintext: bool = True) -> None:
        made = shared or context(address, plaintext=plaintext, role="intruder")
        self._own = None if shared else made
        self._socket = made.sockets.link(address)
        self._socket.connect(f"tcp://{address}")
        self.memory: socket.socket | None = None

    def send(self, *parts: bytes, patience: float = 5.0) -> bool:
        """Send by the network; whether there was room for it."""
        if not self._socket.poll(int(patience * 1000), zmq.POLLOUT):
            return False
        self._socket.send_multipart(parts, zmq.NOBLOCK)
        return True

    def receive(self, patience: float = 5.0) -> tuple[int, bytes] | None:
        """The next message by the network that is more than a sign of life: its kind and itself."""
        until = time.monotonic() + patience
        while self._socket.poll(max(0, int((until - time.monotonic()) * 1000))):
            message = self._socket.recv_multipart()[0]
            if len(message) >= m.PREFIX.size and message[0] != m.KEEPALIVE:
                return message[0], message
        return None

    def hello(self, hello: m.Hello, patience: float = 10.0) -> m.Welcome | m.Refusal | None:
        """Say hello, and hear the answer."""
        self.send(m.encode(m.HELLO, hello))
        until = time.monotonic() + patience
        while (found := self.receive(max(0.0, until - time.monotonic()))) is not None:
            kind, message = found
            if kind == m.WELCOME:
                return m.decode_welcome(message)
            if kind == m.REFUSAL:
                return m.decode_refusal(message)
        return None

    def enter(self, welcome: m.Welcome, patience: float = 10.0) -> bool:
        """Go on by memory; whether that was possible."""
        handshake = ShmHandshakeClient(welcome.socket, welcome.token)
        until = time.monotonic() + patience
        try:
            while not handshake.advance():
                if time.monotonic() > until:
                    return False
                handshake.wait(0.1)
        except OSError:
            handshake.close()
            return False
        self.memory = handshake.socket
        return True

    def send_memory(self, message: bytes, fds: list[int] | None = None, patience: float = 2.0) -> bool:
        """Send by memory; whether it was taken."""
        assert self.memory is not None
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        until = time.monotonic() + patience
        while time.monotonic() < until:
            try:
                self.memory.sendmsg([message], ancillary)
            except BlockingIOError:
                self.drain()
                time.sleep(0.001)
            except OSError:
                return False
            else:
                return True
        return False

    def drain(self) -> bool:
        """Take in what has come by memory; whether the connection is still there."""
        assert self.memory is not None
        try:
            while self.memory.recv(m.MAX_HEADER_BYTES):
                pass
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        """Go away."""
        if self.memory is not None:
            self.memory.close()
        self._socket.close(0)
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def hello(service: str, name: str = "intruder/0/intruder", **changes: Any) -> m.Hello:
    """A hello like those of honest peers, with some changes."""
    fields: dict[str, Any] = {
        "protocol": m.PROTOCOL,
        "oldest": m.OLDEST_PROTOCOL,
        "run": RUN,
        "service": service,
        "name": name,
        "incarnation": 1,
        "host": host_identity(),
    }
    return m.Hello(**(fields | changes))
