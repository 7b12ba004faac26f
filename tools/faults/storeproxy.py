"""An HTTP proxy in front of an S3 server that answers as servers in trouble do; by request, and only when told to.

Signatures stay valid because the `Host` header is passed on as it came. Every request has a connection of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from tools.faults.loop import run

Answer = Literal["error", "slow", "never", "cut"]
_REASONS = {500: "Internal Server Error", 503: "Slow Down"}


@dataclass(frozen=True)
class StoreScript:
    """What happens to requests from now on."""

    answer: Answer
    """error: an HTTP status; slow: the real answer, later; never: none; cut: the connection ends half-way through the
    body, and nothing reaches the server."""
    status: int = 500
    retry_after: int | None = None
    delay: float = 2.0
    """Seconds before a slow answer."""
    only: str = ""
    """A pattern that the method and the path must contain, such as `PUT .*partNumber=`."""
    skip: int = 0
    """So many matching requests pass first."""
    times: int | None = None
    """How many requests are hit; all of them without a number."""
    share: float = 1.0
    """The share of matching requests that are hit, by chance."""


MULTIPART = "PUT .*partNumber="


@dataclass
class StoreProxy:
    """Listens in front of an S3 server; `follow` a script, or None for a server that is well."""

    endpoint: str
    """The real server's URL."""
    seed: int = 0
    url: str = ""
    """What `AWS_ENDPOINT_URL` should say."""
    done: Counter[str] = field(default_factory=Counter)
    requests: list[str] = field(default_factory=list)
    """Method and path of the latest requests."""

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 - must be repeatable
        self._script: StoreScript | None = None
        self._seen = self._hit = 0
        self._open: set[asyncio.Task[Any]] = set()
        host, port = self.endpoint.removeprefix("http://").rstrip("/").rsplit(":", 1)
        self._target = host, int(port)
        run(self._start())

    async def _start(self) -> None:
        self._changed = asyncio.Event()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def follow(self, script: StoreScript | None) -> None:
        """Do this from now on; those who wait for an answer that never comes see the end of their connection."""
        run(self._follow(script))

    async def _follow(self, script: StoreScript | None) -> None:
        self._script = script
        self._seen = self._hit = 0
        self._changed.set()
        self._changed = asyncio.Event()

    def _chosen(self, line: str) -> StoreScript | None:
        script = self._script
        if script is None or not re.search(script.only, line):
            return None
        self._seen += 1
        if self._seen <= script.skip or (script.times is not None and self._hit >= script.times):
            return None
        if self._chance.random() >= script.share:
            return None
        self._hit += 1
        return script

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)  # a loop remembers weakly whom it serves
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        line, *headers = head[:-4].split(b"\r\n")
        told = line.decode(errors="replace").rsplit(" ", 1)[0]
        self.requests = [*self.requests[-99:], told]
        self.done["requests"] += 1
        fields = {
            name.strip().lower(): value.strip() for name, _, value in (h.partition(b":") for h in headers)
        }
        length = int(fields.get(b"content-length", b"0"))
        script = self._chosen(told)
        if script is not None:
            self.done[script.answer] += 1
            if script.answer == "cut":
                await reader.readexactly(length // 2)
                writer.transport.abort()
                return
        body = await reader.readexactly(length)
        if script is not None and script.answer == "never":
            await self._changed.wait()
            return
        if script is not None and script.answer == "error":
            writer.write(_failure(script))
            await writer.drain()
            return
        if script is not None:
            await asyncio.sleep(script.delay)
        kept = [h for h in headers if not h.lower().startswith((b"connection:", b"keep-alive:"))]
        await self._ask(b"\r\n".join([line, *kept, b"Connection: close"]) + b"\r\n\r\n" + body, writer)

    async def _ask(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        try:
            back.write(request)
            await back.drain()
            while data := await there.read(1 << 16):
                writer.write(data)
                await writer.drain()
        finally:
            back.close()

    def close(self) -> None:
        """Stop listening; whoever waits sees the end of the connection."""
        run(self._close())

    async def _close(self) -> None:
        self._server.close()
        for task in self._open:
            task.cancel()

    def __enter__(self) -> StoreProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _failure(script: StoreScript) -> bytes:
    code = "SlowDown" if script.status == 503 else "InternalError"
    body = f"<Error><Code>{code}</Code><Message>by a test</Message></Error>".encode()
    head = f"HTTP/1.1 {script.status} {_REASONS[script.status]}\r\nContent-Type: application/xml\r\n"
    if script.retry_after is not None:
        head += f"Retry-After: {script.retry_after}\r\n"
    return (head + f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n").encode() + body
