"""Follows the output of many pods, through lost connections and new pods.

Every container is followed by a task on the client's event loop; readers get whole lines in chunks, and a slow reader
holds the streams back. A stream that breaks is resumed after the last line that came, by the timestamps that the kubelet
puts before the lines.
"""

from __future__ import annotations

import asyncio
import math
import queue
import re
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from datetime import datetime

from callsheet.backends.base import LogQuery
from callsheet.backends.kubernetes.client.api import Api, Object
from callsheet.backends.kubernetes.client.errors import ApiError, StreamTimeout, Unreachable
from callsheet.backends.kubernetes.observe.logs import LINE_END, LogSource, log_sources, window_of
from callsheet.backends.kubernetes.observe.reasons import uid
from callsheet.backends.log_chunks import LogChunk

POLL = 1.0
"""Seconds between two looks for new pods; more when a look takes long, so that it is a small part of the work."""
_POLL_FACTOR = 5
_LONGEST_POLL = 5.0
"""A look may also take long because the API server is coming back: nobody should wait a minute for the next."""
_RETRY = 1.0
_MAX_QUEUED = 64
"""Chunks that wait for a slow reader before the streams are held back."""
_HELD_BACK = 0.02
_LONGEST_LINE = 64 * 1024
_STAMP = re.compile(rb"^\d{4}-\d\d-\d\dT[^ \n]+ ", re.MULTILINE)

Look = Callable[[], tuple[list[Object], bool]]
"""The pods now, and whether the run has ended."""


class LogFollower:
    """Lines of all chosen containers as they come, until the run has ended and everything is read."""

    def __init__(
        self, api: Api, query: LogQuery, look: Look, keep: Callable[[LogChunk], None] | None = None
    ) -> None:
        self._api = api
        self._query = query
        self._look = look
        self._keep = keep
        self._queue: queue.SimpleQueue[LogChunk | BaseException | None] = queue.SimpleQueue()

    def chunks(self) -> Iterator[LogChunk]:
        """The lines."""
        following = self._api.start(self._run())
        try:
            while (item := self._queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                if self._keep:
                    self._keep(item)
                yield item
        finally:
            following.cancel()

    async def _run(self) -> None:
        end: BaseException | None = None
        try:
            await self._follow_all()
        except BaseExceptionGroup as group:
            end = group.exceptions[0]
        except Exception as error:  # noqa: BLE001 - raised where the lines are read
            end = error
        finally:
            self._queue.put(end)

    async def _follow_all(self) -> None:
        known: set[tuple[str, str]] = set()
        window = window_of(self._query)  # only what was there before is cut: later pods are read whole
        async with asyncio.TaskGroup() as group:
            ended = False
            while not ended:
                began = time.monotonic()
                try:
                    pods, ended = await asyncio.to_thread(self._look)
                except Unreachable:
                    pods = []  # the next look tells
                else:
                    for source in log_sources(pods, self._query):
                        key = (source.uid, source.container)
                        if key not in known:
                            known.add(key)
                            group.create_task(self._follow(source, window))
                    window = {}
                if not ended:
                    await asyncio.sleep(pause_after(time.monotonic() - began))

    async def _follow(self, source: LogSource, window: dict[str, str]) -> None:
        """Lines of one container from its start to its pod's end, each once."""
        decoder = LogDecoder()
        silent_since: float | None = None
        while True:
            began = time.monotonic()
            params = {"container": source.container, "follow": "true", "timestamps": "true"}
            if decoder.last:
                params["sinceTime"] = decoder.last.decode()
            elif window and silent_since is not None:  # what was to be cut is older than the first response
                params["sinceSeconds"] = str(math.ceil(began - silent_since))
            else:
                params |= window
            decoder.restart()
            try:
                async with aclosing(self._api.client.log(source.pod, params)) as chunks:
                    async for chunk in chunks:
                        await self._hand_over(source, decoder.feed(chunk))
                await self._hand_over(source, decoder.flush())
                if await self._has_ended(source):
                    return
            except StreamTimeout:
                silent_since = began if silent_since is None else silent_since
                continue
            except Unreachable:
                pass
            except ApiError as error:
                if error.code == 404:
                    return
                if error.code != 400:  # 400: the container has not started again yet
                    raise
                if await self._has_ended(source):
                    return
            await asyncio.sleep(_RETRY)

    async def _hand_over(self, source: LogSource, text: bytes) -> None:
        if text:
            while self._queue.qsize() >= _MAX_QUEUED:
                await asyncio.sleep(_HELD_BACK)
            self._queue.put(source.chunk(text))

    async def _has_ended(self, source: LogSource) -> bool:
        """Whether nothing more can come. If that is unknown, no: then the log is read again from the last line."""
        try:
            pod = await self._api.client.get("Pod", source.pod)
        except Unreachable:
            return False
        return pod is None or uid(pod) != source.uid or pod["status"].get("phase") in ("Succeeded", "Failed")


def pause_after(took: float) -> float:
    """Seconds until the next look, after one that took so many."""
    return min(_LONGEST_POLL, max(POLL, _POLL_FACTOR * took))


class LogDecoder:
    """Whole lines without their timestamps, each once, however often their stream is resumed."""

    def __init__(self) -> None:
        self.last = b""
        """The timestamp of the last line."""
        self._rest = b""
        self._continued = False
        """Whether the rest is the end of a line whose beginning was too long to wait for."""
        self._known: tuple[float, bytes] | None = None
        """Lines up to this moment have come before."""

    def restart(self) -> None:
        """A stream begins: at the last line's second, if there was one."""
        self._rest, self._continued = b"", False
        self._known = _moment(self.last) if self.last else None

    def feed(self, chunk: bytes) -> bytes:
        """The lines that are complete now."""
        data = self._rest + chunk if self._rest else chunk
        at = data.rfind(LINE_END) + 1
        self._rest = data[at:]
        if at:
            self._continued = False
        lines = self._new(data[:at]) if at else b""
        if len(self._rest) > _LONGEST_LINE:
            lines += self._new(self._rest + LINE_END)
            self._rest, self._continued = b"", True
        return lines

    def flush(self) -> bytes:
        """A last line without an end. What has no timestamp is the kubelet's own message, such as why it gave up."""
        rest, self._rest = self._rest, b""
        return self._new(rest + LINE_END) if rest and (self._continued or _STAMP.match(rest)) else b""

    def _new(self, block: bytes) -> bytes:
        if self._known:
            block = self._skip(block, self._known)
        start = block.rfind(LINE_END, 0, len(block) - 1) + 1
        stamp = _STAMP.match(block[start:])
        if stamp:
            self.last = stamp[0].rstrip()
        return _STAMP.sub(b"", block)

    def _skip(self, block: bytes, known: tuple[float, bytes]) -> bytes:
        for stamp in _STAMP.finditer(block):
            if _moment(stamp[0].rstrip()) > known:
                self._known = None
                return block[stamp.start() :]
        return b""


def _moment(stamp: bytes) -> tuple[float, bytes]:
    """RFC 3339 as seconds and a fraction of nine digits; a node may write its own time zone, and leave out zeros."""
    text = stamp.decode()
    whole, _, rest = text.partition(".")
    digits = re.match(r"\d*", rest)
    fraction = digits[0] if digits else ""
    zone = rest[len(fraction) :] if rest else ""
    return datetime.fromisoformat(whole + zone).timestamp(), fraction.ljust(9, "0").encode()
