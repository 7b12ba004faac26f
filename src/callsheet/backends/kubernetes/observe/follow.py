"""The output of many pods as it comes, through lost connections and new pods.

Every container is followed by a task of one event loop, which has a thread of its own; whoever reads gets whole lines
in chunks, and when they are slow the streams are held back. A stream that breaks is taken up after the last line that
came, by the time stamps that the kubelet puts before the lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import datetime
from typing import Protocol

from callsheet.backends.base import LogQuery
from callsheet.backends.kubernetes.client.api import Api, Object
from callsheet.backends.kubernetes.client.errors import Quiet, Refused, Unreachable
from callsheet.backends.kubernetes.observe.logs import LINE_END, Source, sources, window_of
from callsheet.backends.kubernetes.observe.reasons import uid
from callsheet.backends.log_chunks import LogChunk

LOOK = 1.0
"""Seconds between two looks for pods that have appeared; more when a look takes long, so that it is a small part."""
_PART = 5
_LONGEST_PAUSE = 5.0
"""A look may also take long because the API server is coming back: nobody should wait a minute for the next."""
_RETRY = 1.0
_WAITING = 64
"""Pieces that wait for a slow reader before the streams are held back."""
_HELD_BACK = 0.02
_LONGEST_LINE = 64 * 1024
_STAMP = re.compile(rb"^\d{4}-\d\d-\d\dT[^ \n]+ ", re.MULTILINE)


class Keeper(Protocol):
    """What wants every line that passes, to keep it."""

    def keep(self, chunk: LogChunk) -> None:
        """Keep these lines."""


Look = Callable[[], tuple[list[Object], bool]]
"""The pods now, and whether the run has ended."""


class Following:
    """Lines of all chosen containers as they come, until the run has ended and all is read."""

    def __init__(self, api: Api, query: LogQuery, look: Look, keeper: Keeper | None = None) -> None:
        self._api = api
        self._query = query
        self._look = look
        self._keeper = keeper
        self._queue: queue.SimpleQueue[LogChunk | BaseException | None] = queue.SimpleQueue()
        self._task: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()

    def chunks(self) -> Iterator[LogChunk]:
        """The lines."""
        reader = threading.Thread(target=self._run, daemon=True)
        reader.start()
        try:
            while (item := self._queue.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                if self._keeper:
                    self._keeper.keep(item)
                yield item
        finally:
            loop, task = self._task.result()
            with contextlib.suppress(RuntimeError):  # it has ended already
                loop.call_soon_threadsafe(task.cancel)
            reader.join(1.0)

    def _run(self) -> None:
        end: BaseException | None = None
        try:
            asyncio.run(self._follow_all())
        except asyncio.CancelledError:
            pass
        except BaseExceptionGroup as group:
            end = group.exceptions[0]
        except Exception as error:  # noqa: BLE001 - raised where the lines are read
            end = error
        self._queue.put(end)

    async def _follow_all(self) -> None:
        task = asyncio.current_task()
        assert task
        self._task.set_result((asyncio.get_running_loop(), task))
        known: set[tuple[str, str]] = set()
        window = window_of(self._query)  # only what was there before is cut: later pods are read whole
        async with asyncio.TaskGroup() as group:
            over = False
            while not over:
                began = time.monotonic()
                try:
                    pods, over = await asyncio.to_thread(self._look)
                except Unreachable:
                    pods = []  # the next look tells
                else:
                    for source in sources(pods, self._query):
                        key = (source.uid, source.container)
                        if key not in known:
                            known.add(key)
                            group.create_task(self._follow(source, window))
                    window = {}
                if not over:
                    await asyncio.sleep(pause_after(time.monotonic() - began))

    async def _follow(self, source: Source, window: dict[str, str]) -> None:
        """Lines of one container from its begin to its pod's end, each once."""
        stamped = Stamped()
        quiet: float | None = None
        while True:
            began = time.monotonic()
            params = {"container": source.container, "follow": "true", "timestamps": "true"}
            if stamped.last:
                params["sinceTime"] = stamped.last.decode()
            elif window and quiet is not None:  # what was to be cut off is older than the first answer
                params["sinceSeconds"] = str(math.ceil(began - quiet))
            else:
                params |= window
            stamped.begin()
            broken = False
            try:
                async for chunk in self._api.follow(source.pod, params):
                    await self._hand_over(source, stamped.take(chunk))
                await self._hand_over(source, stamped.end())
            except Quiet:
                quiet = began if quiet is None else quiet
                continue
            except Unreachable:
                broken = True
            except Refused as error:
                if error.code == 404:
                    return
                if error.code != 400:  # 400: the container has not begun again yet
                    raise
            if not broken and await asyncio.to_thread(_is_over, self._api, source):
                return
            await asyncio.sleep(_RETRY)

    async def _hand_over(self, source: Source, text: bytes) -> None:
        if text:
            while self._queue.qsize() >= _WAITING:
                await asyncio.sleep(_HELD_BACK)
            self._queue.put(source.chunk(text))


def pause_after(took: float) -> float:
    """Seconds until the next look, after one that took so many."""
    return min(_LONGEST_PAUSE, max(LOOK, _PART * took))


class Stamped:
    """Whole lines without their time stamps, each once, however often their stream is taken up again."""

    def __init__(self) -> None:
        self.last = b""
        """The stamp of the last line."""
        self._rest = b""
        self._continued = False
        """Whether the rest is the end of a line whose begin was too long to wait for."""
        self._known: tuple[float, bytes] | None = None
        """Lines up to this moment have come before."""

    def begin(self) -> None:
        """A stream begins: at the last line's second, when there was one."""
        self._rest, self._continued = b"", False
        self._known = _moment(self.last) if self.last else None

    def take(self, chunk: bytes) -> bytes:
        """The lines that are whole now."""
        data = self._rest + chunk if self._rest else chunk
        at = data.rfind(LINE_END) + 1
        self._rest = data[at:]
        if at:
            self._continued = False
        found = self._new(data[:at]) if at else b""
        if len(self._rest) > _LONGEST_LINE:
            found += self._new(self._rest + LINE_END)
            self._rest, self._continued = b"", True
        return found

    def end(self) -> bytes:
        """A last line without an end. What has no stamp is the kubelet's own word, such as why it cannot go on."""
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


def _is_over(api: Api, source: Source) -> bool:
    """Whether nothing more can come. When that cannot be told, no: then all is read again from the last line."""
    try:
        pod = api.get("Pod", source.pod)
    except Unreachable:
        return False
    return pod is None or uid(pod) != source.uid or pod["status"].get("phase") in ("Succeeded", "Failed")
