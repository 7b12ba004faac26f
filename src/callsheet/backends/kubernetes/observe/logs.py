"""The output of many pods: which containers are selected, and what they have written so far."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from callsheet.backends.base import LogQuery
from callsheet.backends.kubernetes.client.api import Api, Object
from callsheet.backends.kubernetes.client.errors import ApiError
from callsheet.backends.kubernetes.observe.observed import index_of, role_of
from callsheet.backends.kubernetes.observe.reasons import containers_of, uid
from callsheet.backends.log_chunks import LogChunk, last_lines, whole_lines

LINE_END = b"\n"
_GONE = re.compile(
    rb"unable to retrieve container logs for [a-z0-9.+-]+://[0-9a-f]+"
    rb'|failed to (?:try resolving symlinks in path|open log file) "[^"\n]+": .+: no such file or directory'
)
"""What a kubelet sends, as if it were the log, for a container that it has removed, or is removing."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """One container of one pod."""

    pod: str
    uid: str
    role: str
    index: int
    container: str
    restarts: int

    def chunk(self, data: bytes) -> LogChunk:
        """Lines of it."""
        return LogChunk.decode(self.role, self.index, self.container, data)


def log_sources(pods: Iterable[Object], query: LogQuery) -> list[LogSource]:
    """The selected containers that have started, by role, index and age."""
    chosen = []
    for pod in sorted(pods, key=lambda pod: pod["metadata"].get("creationTimestamp") or ""):
        role, index = role_of(pod), index_of(pod)
        if index is None:
            continue
        for container in containers_of(pod["status"]):
            name = container["name"]
            state = container.get("state") or {}
            started = "running" in state or "terminated" in state or container.get("restartCount")
            if started and query.wants(role, index, name):
                restarts = int(container.get("restartCount", 0))
                chosen.append(LogSource(pod["metadata"]["name"], uid(pod), role, index, name, restarts))
    return sorted(chosen, key=lambda source: (source.role, source.index))


def read_once(
    api: Api, pods: Iterable[Object], query: LogQuery, gone: set[tuple[str, int]]
) -> Iterator[LogChunk]:
    """What the chosen containers have written so far, those of earlier pods of a replica first.

    Replicas whose log no node has any more are added to `gone`.
    """
    groups: dict[tuple[str, int, str], list[LogSource]] = {}
    for source in log_sources(pods, query):
        groups.setdefault((source.role, source.index, source.container), []).append(source)
    for group in groups.values():
        chunks = (chunk for source in group for chunk in _whole(api, source, query, gone))
        yield from last_lines(chunks, query.tail)


def _whole(api: Api, source: LogSource, query: LogQuery, gone: set[tuple[str, int]]) -> Iterator[LogChunk]:
    params = {"container": source.container} | window_of(query)
    for previous in (True, False) if source.restarts else (False,):
        wanted = params | ({"previous": "true"} if previous else {})
        try:
            for text in whole_lines(api.log(source.pod, wanted), LINE_END):
                if _GONE.fullmatch(text):
                    gone.add((source.role, source.index))
                    continue
                yield source.chunk(text)
        except ApiError as error:
            if error.code == 404:
                gone.add((source.role, source.index))
            elif error.code != 400:  # not started
                raise


def window_of(query: LogQuery) -> dict[str, str]:
    """The query parameters for "only the last lines" and "only since"."""
    params = {}
    if query.tail is not None:
        params["tailLines"] = str(query.tail)
    if query.since is not None:
        params["sinceSeconds"] = str(max(1, round(query.since)))
    return params
