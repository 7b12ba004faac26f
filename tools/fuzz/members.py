"""What a hostile member of a run says to a server: hellos, frames, blocks of memory, and noise, each a little wrong."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from typing import Any, Final

import msgspec
import numpy as np

from callsheet.runtime.context import Context
from callsheet.runtime.link import protocol as m
from callsheet.runtime.link.shm_handshake import host_identity
from callsheet.runtime.parameters import protocol as parameters
from callsheet.runtime.parameters.protocol import Version
from callsheet.runtime.policy import protocol as policy
from callsheet.runtime.replay import protocol as replay
from callsheet.runtime.replay.config import insert_schema
from callsheet.runtime.schema import Schema
from callsheet.runtime.stream import sender as stream
from tools.fuzz.chance import Chance
from tools.fuzz.peer import RUN, Peer, hello, sealed
from tools.fuzz.services import ASKED, ITEM

WRITTEN: Final = Schema.of(ITEM)
INSERTED: Final = insert_schema(WRITTEN)
SCHEMAS: Final = {"trajectories": WRITTEN, "replay": INSERTED, "policy": ASKED, "parameters": WRITTEN}
_WANTS: Final = (replay.WRITE, replay.WRITE_DURABLY, replay.TO_SAMPLE)
_LARGE: Final = 256 * 1024


class Member:
    """One that sends cases to a server of one kind, by one connection after the other."""

    def __init__(self, kind: str, address: str, chance: Chance, context: Context) -> None:
        self.kind = kind
        self._address = address
        self._chance = chance
        self._context = context
        self._schema = SCHEMAS[kind]
        self._names = 0
        self.cases = 0

    def greeting(self, *, wrong: bool) -> bytes:
        """A hello, honest or not."""
        chance = self._chance
        self._names += 1
        name = f"intruder/{chance.choice((0, 1, self._names))}/intruder"
        said = [
            m.PROTOCOL, m.OLDEST_PROTOCOL, RUN, self.kind, name, chance.choice((1, self._names)), host_identity(),
            self._schema.encoded, self._hello_body(wrong=False),
        ]  # fmt: skip
        if not wrong:
            return m.encode(m.HELLO) + msgspec.msgpack.encode(said)
        if chance.random() < 0.4:
            said[7] = chance.packed(msgspec.msgpack.decode(self._schema.encoded))
        elif chance.random() < 0.5:
            said[8] = self._hello_body(wrong=True)
        else:
            return self._prefix(m.HELLO) + chance.packed(said)
        return m.encode(m.HELLO) + msgspec.msgpack.encode(said)

    def _hello_body(self, *, wrong: bool) -> bytes:
        chance = self._chance
        if self.kind == "replay":
            want = [chance.choice(_WANTS) if wrong else chance.choice((_WANTS[0], _WANTS[2])), "replay"]
            return chance.packed(want) if wrong else msgspec.msgpack.encode(want)
        return chance.packed([1, 2]) if wrong else b""

    def _prefix(self, kind: int, block: int = m.NO_BLOCK, length: int = 0, flags: int = 0) -> bytes:
        chance = self._chance
        if chance.random() < 0.1:
            return chance.bytes_changed(m.PREFIX.pack(kind, flags, block, m.NO_BLOCK, length))
        released = chance.choice((0, 1, 40, 63, 64, 65535)) if chance.random() < 0.05 else m.NO_BLOCK
        return m.PREFIX.pack(kind, flags, block, released, length)

    def _body(self) -> bytes:
        chance = self._chance
        match self.kind:
            case "parameters":
                version = [chance.choice((0, 1)), chance.choice((-1, 0, 5))]
                return (
                    chance.packed(version) if chance.random() < 0.4 else parameters.encode(Version(*version))
                )
            case "policy":
                lane = bytes([chance.choice((0, 0, 1, 7, 8, 255))])
                return lane + chance.choice((b"", b"\1", b"\0\1", chance.bytes_()))
            case "replay" if chance.random() < 0.5:
                count = chance.choice((1, 2, 5))
                keys = np.array([chance.integer() & ((1 << 64) - 1) for _ in range(count)], np.uint64)
                priorities = np.array(
                    [chance.choice((1.0, 0.0, -1.0, np.nan, np.inf, 1e38)) for _ in range(count)], np.float32
                )
                return replay.encode_update(keys, priorities)
        return b""

    def header(self) -> tuple[list[Any], int]:
        """A header that could be meant, and the bytes that belong to it."""
        chance = self._chance
        verbs = {
            "trajectories": (stream.ITEMS,),
            "replay": (stream.ITEMS, replay.SAMPLE, replay.UPDATE, replay.REQUEST_SNAPSHOT, replay.STATE),
            "parameters": (parameters.FETCH, parameters.WATCH),
            "policy": (policy.REQUEST,),
        }[self.kind]
        verb = chance.choice(verbs)
        count = chance.choice((1, 1, 1, 2, 5, 1024))
        body = self._body()
        if verb == replay.UPDATE and self.kind == "replay":
            count = len(body) // 12
        items = self.kind == "policy" or (verb == stream.ITEMS and self.kind != "parameters")
        length = self._schema.layout(count).nbytes if items else 0
        header: list[Any] = [
            verb,
            self._schema.hash if items else 0,
            count,
            chance.randint(1, 50),
            chance.choice((0, 1, 9)),
            [],
            body,
        ]
        return header, length

    def message(self) -> tuple[bytes, bytes]:
        """A message after the hello, and its payload."""
        chance = self._chance
        way = chance.random()
        if way < 0.05:
            return chance.bytes_(200), b""
        if way < 0.1:
            kind = chance.choice((m.WELCOME, m.REFUSAL, m.KEEPALIVE, m.RELEASE, 0, 99, 255))
            return self._prefix(kind) + chance.choice(
                (b"", chance.bytes_(), struct.pack("<H", chance.choice((0, 31, 40, 63))))
            ), b""
        header, length = self.header()
        block = chance.choice((0, 1, 2, 7, 31)) if length else m.NO_BLOCK
        payload = b""
        if length:
            payload = (
                bytes(length)
                if chance.random() < 0.7
                else chance.randbytes(min(length, 4096)).ljust(length, b"\0")
            )
        if chance.random() < 0.4:
            return self._prefix(m.DATA, block, length) + msgspec.msgpack.encode(header), payload
        packed = chance.packed(header)
        if chance.random() < 0.2 and payload:
            payload = payload[: chance.choice((0, 1, len(payload) - 1, len(payload) // 2))]
        if chance.random() < 0.1:
            length = chance.choice((0, length + 1, _LARGE, 1 << 30, (1 << 30) + 1, (1 << 64) - 1))
            block = chance.choice((m.NO_BLOCK, 0, 63, 64, 999))
        return self._prefix(m.DATA, block, length) + packed, payload

    def over_network(self, sessions: int) -> None:
        """Hellos, each followed by a few messages, on one connection, without waiting for answers."""
        chance = self._chance
        with Peer(self._address, self._context) as peer:
            for _ in range(sessions):
                wrong = chance.random() < 0.3
                peer.send(self.greeting(wrong=wrong), patience=2.0)
                self.cases += wrong
                for _ in range(chance.randint(1, 6)):
                    message, payload = self.message()
                    parts = [message, payload] if payload else [message]
                    if chance.random() < 0.03:
                        parts = chance.choice(([], [b""], [*parts, b"x"], parts * 3, [payload, message]))
                    if parts and not peer.send(*parts, patience=2.0):
                        return
                    self.cases += 1
                while peer.receive(0.0) is not None:
                    pass
            peer.hello(
                hello(self.kind, f"intruder/{self._names}/last", schema=b"?"), 20.0
            )  # all before is done then

    def over_shared_memory(self, sessions: int) -> None:
        """The same through memory: blocks that are not what they seem, and that change after they were sent."""
        for _ in range(sessions):
            with Peer(self._address, self._context) as peer:
                peer.send(self.greeting(wrong=False))
                found = peer.receive(5.0)
                if found is None or found[0] != m.WELCOME:
                    return
                self._session(peer, m.decode_welcome(found[1]))

    def _session(self, peer: Peer, welcome: m.Welcome) -> None:
        chance = self._chance
        if chance.random() < 0.1:  # with a token that is wrong, or somebody else's
            welcome.token = chance.bytes_changed(welcome.token.ljust(32, b"\0"))[:32].ljust(32, b"\0")
        self.cases += 1
        if not peer.enter(welcome, 2.0):
            return
        fds = [self._block(chance.random() < 0.2) for _ in range(2)]
        try:
            for number in range(chance.randint(1, 30)):
                message, payload = self.message()
                fresh = number < 2 or chance.random() < 0.1
                sent = list(fds[:1]) if fresh and chance.random() < 0.9 else []
                if chance.random() < 0.03:
                    sent = fds * chance.choice((1, 2, 5))
                if fresh and len(message) > 1 and chance.random() < 0.95:
                    message = message[:1] + bytes([m.NEW_BLOCK]) + message[2:]
                if not peer.send_memory(message or b"x", sent, patience=1.0):
                    return
                self.cases += 1
                if payload:
                    with contextlib.suppress(OSError):
                        os.pwrite(fds[0], chance.randbytes(64), chance.randrange(_LARGE))
                if not peer.drain():
                    return
        finally:
            for fd in fds:
                os.close(fd)

    def _block(self, wrong: bool) -> int:
        """A block of memory; or something else with a descriptor."""
        chance = self._chance
        if not wrong:
            return sealed(4 * _LARGE)
        match chance.randrange(5):
            case 0:
                return os.memfd_create("unsealed")
            case 1:
                return os.open("/dev/zero", os.O_RDWR)
            case 2:
                read, write = os.pipe()
                os.close(write)
                return read
            case 3:
                return sealed(chance.choice((0, 1, 4095, (1 << 30) + (4 << 20))))
            case _:
                return os.open("/proc/self/exe", os.O_RDONLY)

    def by_noise(self, connections: int) -> None:
        """Bytes at the network's port and at the socket for memory that are no messages at all."""
        chance = self._chance
        host, _, port = self._address.rpartition(":")
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
        ready = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
        for _ in range(connections):
            self.cases += 1
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 2.0) as raw:
                raw.settimeout(0.2)
                raw.sendall(
                    chance.choice((b"", greeting, chance.bytes_changed(greeting), chance.bytes_(400)))
                )
                if chance.random() < 0.5:
                    raw.sendall(
                        chance.choice((ready, chance.bytes_changed(ready), b"\x02" + b"\xff" * 8 + b"x"))
                    )
                    raw.sendall(
                        chance.choice((b"", b"\x00\x05hello", b"\x01\x00\x00\x05hello", chance.bytes_(100)))
                    )

    def knocking(self, name: str, times: int) -> None:
        """At the abstract socket, without a welcome."""
        chance = self._chance
        for _ in range(times):
            self.cases += 1
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as raw:
                raw.setblocking(False)
                raw.connect("\0" + name)
                raw.send(
                    chance.choice((b"x", chance.randbytes(72), chance.randbytes(71), chance.bytes_(1024)))
                    or b"x"
                )

    def slow(self, seconds: float) -> None:
        """Connections that say a part of something and then nothing."""
        open_ = []
        host, _, port = self._address.rpartition(":")
        with contextlib.suppress(OSError):
            for _ in range(20):
                raw = socket.create_connection((host, int(port)), 2.0)
                raw.sendall(b"\xff" + bytes(8))
                open_.append(raw)
                self.cases += 1
        time.sleep(seconds)
        for raw in open_:
            raw.close()
