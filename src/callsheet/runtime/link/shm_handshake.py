"""The abstract Unix socket where a welcomed link turns from the network to memory.

Anyone on the machine can knock at such a socket. Who comes in proves that it received a welcome over the encrypted
connection, by a fresh challenge each time, so that nothing overheard can be said again.
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

NONCE = 32
_TOKEN = 32
_PROOF = 32
_PATIENCE = 5.0
"""Seconds that one who knocked has for its proof."""
_TOKEN_LASTS = 120.0
"""Seconds that a welcome can be used: a listener may be busy with something else for a while."""
_GREETING = 0.05
"""Seconds that a listener stays at the door for those whom it has just welcomed."""
_FULL = 0.05
"""Seconds to wait when there are no descriptors: nothing tells when there are some again."""
_MOST = 4096
"""Tokens that are kept, and connections that the system holds until they are accepted."""
_MOST_WAITING = 256
"""Connections that have not proved themselves: with one more, the oldest is turned away."""
_AT_ONCE = 64
"""Connections that are accepted before the listener sees to its links again: anyone may connect, as fast as it can."""


def host_identity() -> str:
    """Equal in two processes between which abstract sockets, and so memory, can pass."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return ""


def _proof(token: bytes, side: bytes, theirs: bytes, ours: bytes) -> bytes:
    return hmac.digest(token, side + theirs + ours, hashlib.sha256)


class Entry:
    """A link that comes in with a token. It takes as long as the listener does; an `OSError` says why not."""

    def __init__(self, name: str, token: bytes) -> None:
        self.over = time.monotonic() + _TOKEN_LASTS
        self._name = name
        self._token = token
        self._challenge = b""
        self._mine = secrets.token_bytes(NONCE)
        self._connected = False
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)

    def step(self) -> bool:
        """Go on as far as possible without waiting; whether it is in."""
        try:
            if not self._connected:
                self.socket.connect("\0" + self._name)
                self._connected = True
            if not self._challenge:
                self._challenge = self._hear(NONCE)
                proof = _proof(self._token, b"link", self._challenge, self._mine)
                self.socket.send(self._token[:8] + self._mine + proof)
            right = _proof(self._token, b"listener", self._mine, self._challenge)
            if not hmac.compare_digest(self._hear(_PROOF), right):
                raise ConnectionRefusedError("the listener does not know the welcome")
        except BlockingIOError:
            return False
        return True

    def _hear(self, length: int) -> bytes:
        found = self.socket.recv(length)
        if len(found) != length:
            raise ConnectionRefusedError("the listener turned the link away")
        return found

    def wait(self, seconds: float, stop: int = -1) -> None:
        """Until there may be more to do."""
        poll = select.poll()
        if stop >= 0:
            poll.register(stop, select.POLLIN)
        if self._connected:
            poll.register(self.socket, select.POLLIN)
        else:
            seconds = min(seconds, 0.05)  # too many knock at once
        poll.poll(max(0.0, seconds) * 1000)

    def close(self) -> None:
        """Do not come in."""
        self.socket.close()


class Door:
    """The listener's side."""

    def __init__(self) -> None:
        self.name = f"callsheet-{secrets.token_hex(16)}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setblocking(False)
        self.socket.bind("\0" + self.name)
        self.socket.listen(_MOST)
        self.refused = 0
        self._greets_until = 0.0
        self._tokens: dict[bytes, tuple[bytes, object, float]] = {}
        self._waiting: dict[int, tuple[socket.socket, bytes, float]] = {}

    def expect(self, guest: object) -> bytes:
        """A token for one who may come in, once and soon."""
        now = time.monotonic()
        for key, (_, _, until) in list(self._tokens.items()):
            if until < now or len(self._tokens) >= _MOST:
                del self._tokens[key]
        token = secrets.token_bytes(_TOKEN)
        self._tokens[token[:8]] = (token, guest, now + _TOKEN_LASTS)
        self._greets_until = now + _GREETING
        return token

    def revoke(self, token: bytes) -> None:
        """Who was to come in with this token has gone."""
        self._tokens.pop(token[:8], None)

    def greeting(self) -> float:
        """Seconds to stay at the door for those who were just welcomed: they would wait for the next call else."""
        if not self._tokens and not self._waiting:
            return 0.0
        return self._greets_until - time.monotonic()

    def knock(self) -> set[int]:
        """Challenge those who knock; their descriptors, to be watched. When there are no descriptors left, those who
        have not proved themselves make room: anyone may knock, and must not be able to end the listener."""
        found: set[int] = set()
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self.socket.accept()
            except BlockingIOError:
                break
            except OSError:
                if not self._waiting:
                    time.sleep(_FULL)
                    break
                self._turn_away_oldest(found)
                continue
            if len(self._waiting) >= _MOST_WAITING:
                self._turn_away_oldest(found)
            connection.setblocking(False)
            challenge = secrets.token_bytes(NONCE)
            with contextlib.suppress(OSError):
                connection.send(challenge)
            self._waiting[connection.fileno()] = (connection, challenge, time.monotonic() + _PATIENCE)
            found.add(connection.fileno())
        return found

    def waits(self, fd: int) -> bool:
        """Whether this descriptor has not proved itself yet."""
        return fd in self._waiting

    def prove(self, fd: int) -> tuple[socket.socket, object] | None:
        """The connection and its guest, when the proof is right; else it is turned away."""
        connection, challenge, _ = self._waiting.pop(fd)
        try:
            answer = connection.recv(1024)
            key, theirs, proof = answer[:8], answer[8 : 8 + NONCE], answer[8 + NONCE :]
            token, guest, until = self._tokens.pop(key, (b"", None, 0.0))
            right = token and hmac.compare_digest(proof, _proof(token, b"link", challenge, theirs))
            if right and time.monotonic() <= until:
                connection.send(_proof(token, b"listener", theirs, challenge))
                return connection, guest
        except OSError:
            pass
        self.refused += 1
        connection.close()
        return None

    def sweep(self) -> None:
        """Turn those away who say nothing."""
        now = time.monotonic()
        for fd, (_, _, until) in list(self._waiting.items()):
            if until < now:
                self._turn_away(fd)

    def _turn_away_oldest(self, found: set[int]) -> None:
        oldest = next(iter(self._waiting))
        found.discard(oldest)
        self._turn_away(oldest)

    def _turn_away(self, fd: int) -> None:
        connection, _, _ = self._waiting.pop(fd)
        connection.close()
        self.refused += 1

    def close(self) -> None:
        """Nobody comes in any more."""
        self.socket.close()
        for connection, _, _ in self._waiting.values():
            connection.close()
