"""A TCP proxy that does to connections what networks do: cut, stall, delay, corrupt, refuse."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from tools.faults.loop import run

Direction = Literal["to", "from"]
"""Seen from those who connect: `to` the server behind the proxy, or `from` it."""
_PIECE = 1 << 16


@dataclass(frozen=True)
class Script:
    """What the proxy does from now on. Without anything it only passes bytes on."""

    cut_every: int = 0
    """Bytes after which a connection is reset in the middle of what it carries; about so many, by chance."""
    corrupt_every: int = 0
    """Bytes after which one byte is changed; about so many, by chance."""
    stalled: frozenset[Direction] = frozenset()
    """Directions in which nothing passes. What was sent meanwhile arrives afterwards, as TCP has it."""
    delay: float = 0.0
    """Seconds that each piece waits."""
    rate: float = 0.0
    """Bytes a second at most, for each direction of a connection."""
    refuse: bool = False
    """Whether connections are closed as soon as they are made, and those that exist are reset."""


PASS = Script()


@dataclass
class TcpProxy:
    """Listens in front of a server; `target` and `script` may change at any time."""

    target: str
    seed: int = 0
    address: str = ""
    """Where it listens."""
    done: Counter[str] = field(default_factory=Counter)
    """What it did, and how often."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 - must be repeatable
        self._script = PASS
        self._open: set[asyncio.Task[None]] = set()
        self._changed: asyncio.Event
        run(self._start())

    async def _start(self) -> None:
        self._changed = asyncio.Event()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def script(self) -> Script:
        """What happens to connections now."""
        return self._script

    def follow(self, script: Script) -> None:
        """Do this from now on, also to connections that are open."""
        run(self._follow(script))

    async def _follow(self, script: Script) -> None:
        self._script = script
        self._changed.set()
        self._changed = asyncio.Event()
        if script.refuse:
            self._reset_all()

    def reset(self, target: str | None = None) -> None:
        """Reset every connection, and send new ones elsewhere when a target is given."""
        if target is not None:
            self.target = target
        run(self._reset())

    async def _reset(self) -> None:
        self._reset_all()

    def _reset_all(self) -> None:
        self.done["reset"] += len(self._open)
        for task in self._open:
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._script.refuse:
            self.done["refused"] += 1
            _reset(writer)
            return
        host, port = self.target.rsplit(":", 1)
        try:
            there, back = await asyncio.open_connection(host, int(port))
        except OSError:
            _reset(writer)
            return
        self.done["connections"] += 1
        task = asyncio.ensure_future(self._carry((reader, writer), (there, back)))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _carry(
        self,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        ways = [
            asyncio.ensure_future(self._pass("to", near[0], far[1])),
            asyncio.ensure_future(self._pass("from", far[0], near[1])),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            # At once and with an error, as from a router that has forgotten the connection.
            _reset(near[1])
            _reset(far[1])

    async def _pass(
        self, direction: Direction, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_PIECE):
                script = self._script
                while direction in self._script.stalled:
                    self.done["stalled"] += 1
                    await self._changed.wait()
                if script.delay or script.rate:
                    self.done["slowed"] += 1
                    await asyncio.sleep(script.delay + (len(data) / script.rate if script.rate else 0.0))
                if self._happens(script.cut_every, len(data)):
                    self.done["cut"] += 1
                    sink.write(data[: len(data) // 2])
                    await sink.drain()
                    return
                if self._happens(script.corrupt_every, len(data)):
                    self.done["corrupted"] += 1
                    at = self._chance.randrange(len(data))
                    data = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
                sink.write(data)
                await sink.drain()

    def _happens(self, every: int, size: int) -> bool:
        return bool(every) and self._chance.random() < size / every

    def close(self) -> None:
        """Stop listening and reset what is open."""
        run(self._close())

    async def _close(self) -> None:
        self._server.close()
        self._reset_all()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        found = writer.get_extra_info("socket")
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
