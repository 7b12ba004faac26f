"""The output of many pods as one stream of lines: now, or as it comes, through lost connections and new pods.

Each container is read by a thread of its own; they hand over pieces of many lines at a time. A stream that breaks is
taken up after the last line that came, by the time stamps that the kubelet puts before the lines.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from callsheet.backends.base import LogLine, LogQuery
from callsheet.backends.kubernetes.api import Api, Object
from callsheet.backends.kubernetes.reasons import containers_of, uid
from callsheet.backends.kubernetes.refusals import Refused, Unreachable
from callsheet.backends.kubernetes.status import index_of, role_of
from callsheet.errors import CallsheetError

LOOK = 1.0
"""Seconds between two looks for pods that have appeared."""
_RETRY = 1.0
_GONE = re.compile(rb"unable to retrieve container logs for [a-z0-9.+-]+://[0-9a-f]+")
"""What a kubelet sends, as if it were the log, for a container that it has removed."""
_WAITING = 200
"""Pieces that wait for a slow reader before the streams are held back."""


class Keeper(Protocol):
    """What wants every line that passes, to keep it."""

    def keep(self, lines: list[LogLine]) -> None:
        """Keep these lines."""


@dataclass(frozen=True, slots=True)
class Source:
    """One container of one pod."""

    pod: str
    uid: str
    role: str
    index: int
    container: str
    restarts: int

    def line(self, text: str) -> LogLine:
        """A line of it."""
        return LogLine(self.role, self.index, self.container, text)


def sources(pods: Iterable[Object], query: LogQuery) -> list[Source]:
    """The containers that are asked for and have begun, by role, index and age."""
    found = []
    for pod in sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or ""):
        role, index = role_of(pod), index_of(pod)
        if index is None:
            continue
        for container in containers_of(pod["status"]):
            name = container["name"]
            state = container.get("state") or {}
            begun = "running" in state or "terminated" in state or container.get("restartCount")
            if begun and _wanted(query, role, index, name):
                restarts = int(container.get("restartCount", 0))
                found.append(Source(pod["metadata"]["name"], uid(pod), role, index, name, restarts))
    return sorted(found, key=lambda source: (source.role, source.index))


def _wanted(query: LogQuery, role: str, index: int, container: str) -> bool:
    if query.container and query.container != container:
        return False
    return not query.targets or any(
        target.matches(role, index) and target.container in (None, container) for target in query.targets
    )


def read_once(
    api: Api, pods: Iterable[Object], query: LogQuery, gone: set[tuple[str, int]]
) -> Iterator[LogLine]:
    """What the chosen containers have written so far, those of earlier pods of a replica first.

    Replicas whose log no node has any more are put into `gone`.
    """
    pattern = re.compile(query.grep) if query.grep else None
    groups: dict[tuple[str, int, str], list[Source]] = {}
    for source in sources(pods, query):
        groups.setdefault((source.role, source.index, source.container), []).append(source)
    for group in groups.values():
        lines = (line for source in group for line in _whole(api, source, query, gone))
        for line in deque(lines, maxlen=query.tail) if query.tail is not None else lines:
            if pattern is None or pattern.search(line.text):
                yield line


def _whole(api: Api, source: Source, query: LogQuery, gone: set[tuple[str, int]]) -> Iterator[LogLine]:
    params = {"container": source.container} | _window(query)
    for previous in (True, False) if source.restarts else (False,):
        wanted = params | ({"previous": "true"} if previous else {})
        try:
            for piece in _lines(api.log(source.pod, wanted)):
                if _is_gone(piece):
                    gone.add((source.role, source.index))
                    continue
                yield from (source.line(line.decode(errors="replace")) for line in piece)
        except Refused as error:
            if error.code not in (400, 404):  # not begun, or gone
                raise


def _is_gone(piece: list[bytes]) -> bool:
    return len(piece) == 1 and _GONE.fullmatch(piece[0]) is not None


def _window(query: LogQuery) -> dict[str, str]:
    params = {}
    if query.tail is not None:
        params["tailLines"] = str(query.tail)
    if query.since is not None:
        params["sinceSeconds"] = str(max(1, round(query.since)))
    return params


def _lines(pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Whole lines, many at a time."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        if whole:
            yield whole
    if rest:
        yield [rest]


Look = Callable[[], tuple[list[Object], bool]]
"""The pods now, and whether the run has ended."""


class Following:
    """Lines of all chosen containers as they come, until the run has ended and all is read."""

    def __init__(self, api: Api, query: LogQuery, look: Look, keeper: Keeper | None = None) -> None:
        self._api = api
        self._query = query
        self._look = look
        self._keeper = keeper
        self._queue: queue.Queue[list[LogLine]] = queue.Queue(_WAITING)
        self._threads: dict[tuple[str, str], threading.Thread] = {}
        self._stopped = threading.Event()
        self._error: CallsheetError | None = None

    def lines(self) -> Iterator[LogLine]:
        """The lines."""
        pattern = re.compile(self._query.grep) if self._query.grep else None
        try:
            for piece in self._pieces():
                if self._keeper:
                    self._keeper.keep(piece)
                yield from (line for line in piece if pattern is None or pattern.search(line.text))
        finally:
            self._stopped.set()

    def _pieces(self) -> Iterator[list[LogLine]]:
        looked = over = False
        at = 0.0
        while True:
            if not over and time.monotonic() >= at:
                over = self._start(first=not looked)
                looked, at = True, time.monotonic() + LOOK
            if self._error:
                raise self._error
            try:
                yield self._queue.get(timeout=0.1)
            except queue.Empty:
                if over and not any(thread.is_alive() for thread in self._threads.values()):
                    break
        while not self._queue.empty():
            yield self._queue.get()

    def _start(self, *, first: bool) -> bool:
        """Read what has begun since the last look; whether the run has ended."""
        try:
            pods, over = self._look()
        except Unreachable:
            return False  # the next look tells
        for source in sources(pods, self._query):
            key = (source.uid, source.container)
            if key not in self._threads:
                window = _window(self._query) if first else {}
                thread = threading.Thread(target=self._read, args=(source, window), daemon=True)
                self._threads[key] = thread
                thread.start()
        return over

    def _read(self, source: Source, window: dict[str, str]) -> None:
        try:
            for piece in follow(self._api, source, window, self._stopped):
                lines = [source.line(line.decode(errors="replace")) for line in piece]
                while not self._stopped.is_set():
                    try:
                        self._queue.put(lines, timeout=0.5)
                        break
                    except queue.Full:
                        continue
        except CallsheetError as error:
            self._error = error


def follow(
    api: Api, source: Source, window: dict[str, str], stopped: threading.Event
) -> Iterator[list[bytes]]:
    """Lines of one container from its begin to its pod's end, each once."""
    last = b""
    while not stopped.is_set():
        params = {"container": source.container, "follow": "true", "timestamps": "true"}
        params |= {"sinceTime": last.decode()} if last else window
        broken = False
        skipping = _after(last) if last else None
        try:
            for piece in _lines(api.log(source.pod, params)):
                if _is_gone(piece):
                    continue
                stamped = [line.partition(b" ") for line in piece]
                if skipping:
                    stamped = [parts for parts in stamped if skipping(parts[0])]
                if stamped:
                    last = stamped[-1][0] or last
                    skipping = None
                    yield [parts[2] for parts in stamped]
        except Unreachable:
            broken = True
        except Refused as error:
            if error.code == 404:
                return
            if error.code != 400:  # 400: the container has not begun again yet
                raise
        if not broken and _is_over(api, source):
            return
        stopped.wait(_RETRY)


def _is_over(api: Api, source: Source) -> bool:
    """Whether nothing more can come. When that cannot be told, no: then all is read again from the last line."""
    try:
        pod = api.get("Pod", source.pod)
    except Unreachable:
        return False
    return pod is None or uid(pod) != source.uid or pod["status"].get("phase") in ("Succeeded", "Failed")


def _after(last: bytes) -> Callable[[bytes], bool]:
    """Whether a time stamp is later than the last one."""
    limit = _sortable(last)
    return lambda stamp: _sortable(stamp) > limit


def _sortable(stamp: bytes) -> bytes:
    """RFC 3339 with nine digits of fraction: the kubelet leaves out zeros at the end."""
    whole, _, fraction = stamp.rstrip(b"Z").partition(b".")
    return whole + b"." + fraction.ljust(9, b"0")
