"""The verbs of the API server for an event loop, with plain or typed objects; `Api` has them for all other code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Literal, TypeVar

import msgspec

from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.client.errors import ApiError, Unreachable
from callsheet.backends.kubernetes.client.http import HttpClient, WebSocket
from callsheet.backends.kubernetes.client.resources import PATHS, Object, path_of, selection

T = TypeVar("T")
PAGE = 500
"""Objects in one response of a list."""
WATCH_SILENCE = 90.0
"""Seconds without even a bookmark, which comes every minute, after which a watch is opened again."""
LOG_SILENCE = 60.0
"""Seconds without a byte after which a log is requested again if a proxy is in between: a lost connection behind it looks
like a container that prints nothing."""
_RETRY = 1.0
_EXPIRED = 410
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_object: Callable[[bytes], Object] = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Snapshot(Generic[T]):
    """Every object that a watch selects. What is not among them is gone."""

    items: list[T]


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """What happened to one object."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    item: T


class _ListMetadata(msgspec.Struct, rename={"resume": "continue", "version": "resourceVersion"}):
    version: str = ""
    resume: str = ""


class _Page(msgspec.Struct, Generic[T]):
    metadata: _ListMetadata
    items: list[T] | None = None


class _WatchLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(msgspec.Struct):
    metadata: _ListMetadata


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


@cache
def _decoder(type_: Any) -> Callable[[bytes | msgspec.Raw], Any]:
    return msgspec.json.Decoder(type_).decode


class AsyncApi:
    """One cluster, seen from one namespace. Lists and watches give dictionaries, or the msgspec type that you pass."""

    def __init__(self, http: HttpClient, namespace: str) -> None:
        self.http = http
        self.namespace = namespace

    async def get(self, kind: str, name: str) -> Object | None:
        """The object; None if there is none of that name."""
        try:
            return await self.request("GET", self.path(kind, name), what=f"get the {kind} {name}")
        except ApiError as error:
            if error.code == 404 and "namespaces " not in error.text:
                return None
            raise

    async def create(self, made: Object, *, dry_run: bool = False) -> Object:
        """Create an object."""
        kind, name = made["kind"], made["metadata"].get("name", "")
        return await self.request(
            "POST", self.path(kind), body=made, params=_manager(dry_run), what=f"create the {kind} {name}"
        )

    async def apply(self, made: Object, *, dry_run: bool = False) -> Object:
        """Server-side apply as our own field manager."""
        kind, name = made["kind"], made["metadata"]["name"]
        params = _manager(dry_run) | {"force": "true"}
        what = f"apply the {kind} {name}"
        return await self.request(
            "PATCH", self.path(kind, name), body=made, params=params, content=_APPLY, what=what
        )

    async def patch(self, kind: str, name: str, body: Object) -> Object:
        """Change some fields."""
        what = f"change the {kind} {name}"
        return await self.request(
            "PATCH", self.path(kind, name), body=body, params=_manager(), content=_MERGE, what=what
        )

    async def delete(
        self, kind: str, name: str, *, grace: int | None = None, foreground: bool = False
    ) -> bool:
        """Delete an object with what it owns; False if it was not there."""
        options: Object = {"propagationPolicy": "Foreground" if foreground else "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        what = f"delete the {kind} {name}"
        return await self._if_there("DELETE", self.path(kind, name), options, what)

    async def evict(self, pod: str) -> bool:
        """Ask a pod to go, as a drain does: what replaces it does not count it as a failure."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        return await self._if_there("POST", f"{self.path('Pod', pod)}/eviction", body, f"evict the pod {pod}")

    async def _if_there(self, method: str, path: str, body: Object, what: str) -> bool:
        try:
            await self.request(method, path, body=body, what=what)
        except ApiError as error:
            if error.code == 404:
                return False
            raise
        return True

    async def objects(
        self,
        kind: str,
        labels: Mapping[str, str] | None = None,
        *,
        fields: str = "",
        namespace: str = "",
        type: Any = Object,
    ) -> list[Any]:
        """Objects with these labels, listed in pages; in all namespaces with `namespace` "*"."""
        items, _ = await self._list(
            kind, self.path(kind, namespace=namespace), selection(labels, fields), type
        )
        return items

    async def _list(
        self, kind: str, path: str, selected: Mapping[str, str], type_: Any
    ) -> tuple[list[Any], str]:
        """All pages, and the version to watch from. A list that changed too much between two pages begins again."""
        items: list[Any] = []
        resume = ""
        while True:
            params = {**selected, "limit": str(PAGE)} | ({"continue": resume} if resume else {})
            try:
                what, decode = f"list {PATHS[kind][1]}", _decoder(_Page[type_])
                page = await self.http.json("GET", path, params=params, what=what, decode=decode)
            except ApiError as error:
                if error.code != _EXPIRED or not resume:
                    raise
                items, resume = [], ""
                continue
            items += page.items or []
            resume = page.metadata.resume
            if not resume:
                return items, page.metadata.version

    async def watch(
        self,
        kind: str,
        labels: Mapping[str, str] | None = None,
        *,
        fields: str = "",
        namespace: str = "",
        type: Any = Object,
    ) -> AsyncGenerator[Snapshot[Any] | Change[Any]]:
        """A snapshot, then every change, without an end.

        A watch that breaks, ends or is silent is opened again where it was. If the server no longer knows the changes
        since then, another snapshot comes. Only a first list that fails is an error.
        """
        path, selected = self.path(kind, namespace=namespace), selection(labels, fields)
        first = True
        while True:
            try:
                items, version = await self._list(kind, path, selected, type)
            except Unreachable:
                if first:
                    raise
                await asyncio.sleep(_RETRY)
                continue
            first = False
            yield Snapshot(items)
            changes = self._watch(
                f"watch {PATHS[kind][1]}", path, {**selected, "resourceVersion": version}, type
            )
            async with aclosing(changes):
                async for change in changes:
                    yield change

    async def _watch(
        self, what: str, path: str, params: dict[str, str], type_: Any
    ) -> AsyncGenerator[Change[Any]]:
        """Changes from a version on, until the server has forgotten what came after it."""
        params |= {"watch": "true", "allowWatchBookmarks": "true"}
        decode_version, decode_item = _decoder(_Bookmark), _decoder(type_)
        while True:
            opened = time.monotonic()
            chunks = self.http.stream(path, what=what, params=params, silence=WATCH_SILENCE)
            try:
                async with aclosing(_lines(chunks)) as lines:
                    async for line in lines:
                        event = _decoder(_WatchLine)(line)
                        if event.type == "ERROR":
                            status = _decoder(_Status)(event.object)
                            raise ApiError(status.code, status.message, status.message)
                        params["resourceVersion"] = decode_version(event.object).metadata.version
                        if event.type != "BOOKMARK":
                            yield Change(event.type, decode_item(event.object))
            except (Unreachable, msgspec.DecodeError):
                pass
            except ApiError as error:
                if error.code == _EXPIRED:
                    return
                if error.code < 500 and error.code != 429:
                    raise
            # No tight loop with a server that ends every watch at once.
            await asyncio.sleep(max(0.0, opened + _RETRY - time.monotonic()))

    async def log(self, pod: str, params: Mapping[str, str]) -> AsyncGenerator[bytes]:
        """Pieces of a container's log as they arrive."""
        silence = None if params.get("follow") == "true" and not self.http.proxy else LOG_SILENCE
        path, what = f"{self.path('Pod', pod)}/log", f"read the log of the pod {pod}"
        async with aclosing(self.http.stream(path, what=what, params=params, silence=silence)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def websocket(self, pod: str, verb: str, params: Any, protocol: str, what: str) -> WebSocket:
        """A two-way stream to a pod: `exec` or `portforward`."""
        path = f"{self.path('Pod', pod)}/{verb}"
        return await self.http.websocket(path, params=params, protocol=protocol, what=what)

    async def allowed(self, verb: str, resource: str, group: str = "", subresource: str = "") -> bool:
        """Whether we have a right in the namespace."""
        attributes = {
            "namespace": self.namespace,
            "verb": verb,
            "resource": resource,
            "group": group,
            "subresource": subresource,
        }
        version = "authorization.k8s.io/v1"
        answer = await self.request(
            "POST",
            f"apis/{version}/selfsubjectaccessreviews",
            body={
                "apiVersion": version,
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            },
            what="check your rights",
        )
        return bool(answer["status"].get("allowed"))

    async def request(self, method: str, path: str, *, what: str, **options: Any) -> Object:
        """Any request whose response is an object, such as the cluster's version."""
        return await self.http.json(method, path, what=what, decode=_object, **options)

    def path(self, kind: str, name: str = "", *, namespace: str = "") -> str:
        """The path of an object, or of all objects of a kind."""
        return path_of(kind, name, namespace=namespace or self.namespace)


def _manager(dry_run: bool = False) -> dict[str, str]:
    return {"fieldManager": names.MANAGER} | ({"dryRun": "All"} if dry_run else {})


async def _lines(chunks: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Whole lines of any length: an object may have megabytes."""
    begun: list[bytes] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun.append(first)
        for part in others:
            yield b"".join(begun)
            begun = [part]
