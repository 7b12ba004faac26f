"""The verbs of the API server for code without an event loop, with plain objects in and out.

Every refusal becomes an error with a sentence; a server that does not answer becomes `Unreachable`, which callers that
wait take as "try again". May be used from several threads.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from callsheet.backends.kubernetes.client.connect import Connection, connect
from callsheet.backends.kubernetes.client.resources import EVERYWHERE, Object

if TYPE_CHECKING:
    from callsheet.backends.kubernetes.client.async_api import AsyncApi

T = TypeVar("T")
__all__ = ["EVERYWHERE", "Api", "Object"]


class Api:
    """One cluster, seen from one namespace."""

    def __init__(self, connection: Connection, client: AsyncApi) -> None:
        self._connection = connection  # its loop ends when the last of us lets go of it
        self.client = client
        """The asynchronous client, for work given to `run` and `start`."""
        self.context = connection.context
        self.namespace = client.namespace
        self.server = client.http.server

    @staticmethod
    def connect(context: str = "", namespace: str = "") -> Api:
        """The cluster of a context of the kubeconfig."""
        connection = connect(context, namespace)
        return Api(connection, connection.client)

    def within(self, namespace: str) -> Api:
        """The same cluster, seen from another namespace."""
        return Api(self._connection, type(self.client)(self.client.http, namespace))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of some work with the asynchronous client."""
        return self._connection.loop.run(work)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin some work with the asynchronous client."""
        return self._connection.loop.start(work)

    def get(self, kind: str, name: str) -> Object | None:
        """The object; None if there is none of that name."""
        return self.run(self.client.get(kind, name))

    def objects(
        self, kind: str, labels: Mapping[str, str] | None = None, *, fields: str = "", namespace: str = ""
    ) -> list[Object]:
        """Objects with these labels; in all namespaces with `namespace` "*"."""
        return self.run(self.client.objects(kind, labels, fields=fields, namespace=namespace))

    def apply(self, made: Object, *, dry_run: bool = False) -> Object:
        """Server-side apply as our own field manager."""
        return self.run(self.client.apply(made, dry_run=dry_run))

    def create(self, made: Object, *, dry_run: bool = False) -> Object:
        """Create an object."""
        return self.run(self.client.create(made, dry_run=dry_run))

    def patch(self, kind: str, name: str, body: Object) -> Object:
        """Change some fields."""
        return self.run(self.client.patch(kind, name, body))

    def delete(self, kind: str, name: str, *, grace: int | None = None, foreground: bool = False) -> bool:
        """Delete an object with what it owns; False if it was not there."""
        return self.run(self.client.delete(kind, name, grace=grace, foreground=foreground))

    def evict(self, pod: str) -> bool:
        """Ask a pod to go, as a drain does; False if it was gone already."""
        return self.run(self.client.evict(pod))

    def log(self, pod: str, params: Mapping[str, str]) -> Iterator[bytes]:
        """Pieces of a container's log as they arrive."""
        return self._connection.loop.iterate(self.client.log(pod, params))

    def allowed(self, verb: str, resource: str, group: str = "", subresource: str = "") -> bool:
        """Whether we have a right in the namespace."""
        return self.run(self.client.allowed(verb, resource, group, subresource))

    def cluster(self, path: str, what: str, params: Mapping[str, str] | None = None) -> Object:
        """Something outside the namespace, such as the nodes or the version."""
        return self.run(self.client.request("GET", path, params=params, what=what))
