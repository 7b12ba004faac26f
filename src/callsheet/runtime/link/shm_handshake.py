"""The handshake that upgrades a welcomed link from the network to shared memory, over an abstract Unix socket.

Any local process can connect to such a socket. The two sides prove to each other, with a fresh challenge each time,
that they share the token of a welcome that was sent over the encrypted connection.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import select
import socket
import time

NONCE_BYTES = 32
_TOKEN_BYTES = 32
_PROOF_BYTES = 32
_PROOF_TIMEOUT = 5.0
"""Seconds a new connection has to send its proof."""
_TOKEN_LIFETIME = 120.0
"""Seconds a token is valid: a listener may be busy with something else for a while."""
_UPGRADE_GRACE = 0.05
"""Seconds a listener waits for links that it has just welcomed."""
_NO_FD_PAUSE = 0.05
"""Seconds to wait when the process is out of file descriptors."""
_MAX_TOKENS = 4096
"""Limit for stored tokens, and for connections in the kernel's backlog."""
_MAX_PENDING = 256
"""Limit for unauthenticated connections; one more, and the oldest is dropped."""
_ACCEPT_BATCH = 64
"""Connections to accept before serving links again: anyone may connect, at any rate."""


def host_identity() -> str:
    """Equal in two processes that can reach each other's abstract sockets, and thus share memory."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return ""


def _proof(token: bytes, side: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(token, side + first + second, hashlib.sha256)


class ShmHandshakeClient:
    """The link's side. It takes as long as the listener does; an `OSError` means that the listener refused."""

    def __init__(self, name: str, token: bytes) -> None:
        self.expires_at = time.monotonic() + _TOKEN_LIFETIME
        self._name = name
        self._token = token
        self._challenge = b""
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._connected = False
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)

    def advance(self) -> bool:
        """Continue as far as possible without blocking; return whether the handshake is complete."""
        try:
            if not self._connected:
                self.socket.connect("\0" + self._name)
                self._connected = True
            if not self._challenge:
                self._challenge = self._receive(NONCE_BYTES)
                proof = _proof(self._token, b"link", self._challenge, self._nonce)
                self.socket.send(self._token[:8] + self._nonce + proof)
            expected = _proof(self._token, b"listener", self._nonce, self._challenge)
            if not hmac.compare_digest(self._receive(_PROOF_BYTES), expected):
                raise ConnectionRefusedError("the listener does not know the welcome")
        except BlockingIOError:
            return False
        return True

    def _receive(self, length: int) -> bytes:
        data = self.socket.recv(length)
        if len(data) != length:
            raise ConnectionRefusedError("the listener turned the link away")
        return data

    def wait(self, seconds: float, stop: int = -1) -> None:
        """Wait until there may be progress."""
        poll = select.poll()
        if stop >= 0:
            poll.register(stop, select.POLLIN)
        if self._connected:
            poll.register(self.socket, select.POLLIN)
        else:
            seconds = min(seconds, 0.05)  # the backlog is full
        poll.poll(max(0.0, seconds) * 1000)

    def close(self) -> None:
        """Abort."""
        self.socket.close()


class ShmHandshakeServer:
    """The listener's side."""

    def __init__(self) -> None:
        self.name = f"callsheet-{secrets.token_hex(16)}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        self.socket.bind("\0" + self.name)
        self.socket.listen(_MAX_TOKENS)
        self.refused = 0
        self._grace_until = 0.0
        self._tokens: dict[bytes, tuple[bytes, object, float]] = {}
        self._pending: dict[int, tuple[socket.socket, bytes, float]] = {}

    def issue_token(self, peer: object) -> bytes:
        """A token that `peer` can use once."""
        now = time.monotonic()
        for key, (_, _, until) in list(self._tokens.items()):
            if until < now or len(self._tokens) >= _MAX_TOKENS:
                del self._tokens[key]
        token = secrets.token_bytes(_TOKEN_BYTES)
        self._tokens[token[:8]] = (token, peer, now + _TOKEN_LIFETIME)
        self._grace_until = now + _UPGRADE_GRACE
        return token

    def is_valid(self, token: bytes) -> bool:
        """Whether its peer may still use this token."""
        return time.monotonic() <= self._tokens.get(token[:8], (b"", None, 0.0))[2]

    def revoke_token(self, token: bytes) -> None:
        """The peer of this token is gone."""
        self._tokens.pop(token[:8], None)

    def grace_left(self) -> float:
        """Seconds to wait for links that were just welcomed: otherwise they would wait for the next call."""
        if not self._tokens and not self._pending:
            return 0.0
        return self._grace_until - time.monotonic()

    def accept(self) -> set[int]:
        """Accept and challenge new connections; return their descriptors to poll. If the process is out of
        descriptors, unauthenticated connections are dropped: anyone may connect, but nobody may stop the listener
        that way."""
        accepted: set[int] = set()
        for _ in range(_ACCEPT_BATCH):
            try:
                connection, _ = self.socket.accept()
            except BlockingIOError:
                break
            except OSError:
                if not self._pending:
                    time.sleep(_NO_FD_PAUSE)
                    break
                self._reject_oldest(accepted)
                continue
            if len(self._pending) >= _MAX_PENDING:
                self._reject_oldest(accepted)
            connection.setblocking(False)
            challenge = secrets.token_bytes(NONCE_BYTES)
            with contextlib.suppress(OSError):
                connection.send(challenge)
            self._pending[connection.fileno()] = (connection, challenge, time.monotonic() + _PROOF_TIMEOUT)
            accepted.add(connection.fileno())
        return accepted

    def is_pending(self, fd: int) -> bool:
        """Whether this connection is not authenticated yet."""
        return fd in self._pending

    def authenticate(self, fd: int) -> tuple[socket.socket, object] | None:
        """Check the proof: return the connection and its peer, or drop the connection and return None."""
        connection, challenge, _ = self._pending.pop(fd)
        try:
            answer = connection.recv(1024)
            key, client_nonce, proof = answer[:8], answer[8 : 8 + NONCE_BYTES], answer[8 + NONCE_BYTES :]
            token, peer, until = self._tokens.pop(key, (b"", None, 0.0))
            valid = token and hmac.compare_digest(proof, _proof(token, b"link", challenge, client_nonce))
            if valid and time.monotonic() <= until:
                connection.send(_proof(token, b"listener", client_nonce, challenge))
                return connection, peer
        except OSError:
            pass
        self.refused += 1
        connection.close()
        return None

    def drop_expired(self) -> None:
        """Drop connections that did not send their proof in time."""
        now = time.monotonic()
        for fd, (_, _, until) in list(self._pending.items()):
            if until < now:
                self._reject(fd)

    def _reject_oldest(self, accepted: set[int]) -> None:
        oldest = next(iter(self._pending))
        accepted.discard(oldest)
        self._reject(oldest)

    def _reject(self, fd: int) -> None:
        connection, _, _ = self._pending.pop(fd)
        connection.close()
        self.refused += 1

    def close(self) -> None:
        """Close the socket and all pending connections."""
        self.socket.close()
        for connection, _, _ in self._pending.values():
            connection.close()
