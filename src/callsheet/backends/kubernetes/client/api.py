"""The verbs of the API server, with plain objects in and out: the same shape as what the renderer makes.

Every refusal becomes an error with a sentence; a server that does not answer becomes `Unreachable`, which callers that
wait take as "try again".
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.client import stream
from callsheet.backends.kubernetes.client.connect import Connection, connect
from callsheet.backends.kubernetes.client.errors import Quiet, Refused, Unreachable, refusal, status_text
from callsheet.errors import UserError

if TYPE_CHECKING:
    from httpx2.websockets import WebSocketSession

Object = dict[str, Any]

PATHS: Final = {
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "Service": ("api/v1", "services"),
    "Pod": ("api/v1", "pods"),
    "Event": ("api/v1", "events"),
    "Ingress": ("apis/networking.k8s.io/v1", "ingresses"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "Job": ("apis/batch/v1", "jobs"),
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
}
EVERYWHERE: Final = "*"
_LATER = (429, 503)
_TRIES = 5
_PATIENCE_S = 5
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"


class Api:
    """One cluster, seen from one namespace."""

    def __init__(self, connection: Connection, namespace: str = "") -> None:
        self._connection = connection  # the sockets are closed when the last of us lets go of it
        self._http = connection.http
        self.context = connection.context
        self.namespace = namespace or connection.namespace
        self.server = connection.server

    @staticmethod
    def connect(context: str = "", namespace: str = "") -> Api:
        """The cluster of a context of the kubeconfig."""
        return Api(connect(context, namespace))

    def within(self, namespace: str) -> Api:
        """The same cluster, seen from another namespace."""
        return Api(self._connection, namespace)

    def get(self, kind: str, name: str) -> Object | None:
        """The object; None when there is none of that name."""
        try:
            return self._json("GET", self._path(kind, name), what=f"get the {kind} {name}")
        except Refused as error:
            if error.code == 404 and "namespaces " not in error.text:
                return None
            raise

    def objects(
        self, kind: str, labels: Mapping[str, str] | None = None, *, fields: str = "", namespace: str = ""
    ) -> list[Object]:
        """Objects with these labels; in all namespaces with `namespace` "*"."""
        params = {}
        if labels:
            params["labelSelector"] = ",".join(f"{key}={value}" for key, value in labels.items())
        if fields:
            params["fieldSelector"] = fields
        found: list[Object] = []
        while True:
            what = f"list {PATHS[kind][1]}"
            answer = self._json("GET", self._path(kind, namespace=namespace), params=params, what=what)
            found += answer["items"]
            if not answer["metadata"].get("continue"):
                return found
            params["continue"] = answer["metadata"]["continue"]

    def apply(self, made: Object, *, dry_run: bool = False) -> Object:
        """Server-side apply as our own field manager."""
        kind, name = made["kind"], made["metadata"]["name"]
        params = {"fieldManager": names.MANAGER, "force": "true"} | ({"dryRun": "All"} if dry_run else {})
        return self._json(
            "PATCH",
            self._path(kind, name),
            body=made,
            params=params,
            content=_APPLY,
            what=f"apply the {kind} {name}",
        )

    def create(self, made: Object, *, dry_run: bool = False) -> Object:
        """Make a new object."""
        kind = made["kind"]
        params = {"fieldManager": names.MANAGER} | ({"dryRun": "All"} if dry_run else {})
        what = f"create the {kind} {made['metadata'].get('name', '')}"
        return self._json("POST", self._path(kind), body=made, params=params, what=what)

    def patch(self, kind: str, name: str, body: Object) -> Object:
        """Change some fields."""
        params = {"fieldManager": names.MANAGER}
        return self._json(
            "PATCH",
            self._path(kind, name),
            body=body,
            params=params,
            content=_MERGE,
            what=f"change the {kind} {name}",
        )

    def delete(self, kind: str, name: str, *, grace: int | None = None, foreground: bool = False) -> bool:
        """Delete an object with what it owns; False when it was not there."""
        options: Object = {"propagationPolicy": "Foreground" if foreground else "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self._json("DELETE", self._path(kind, name), body=options, what=f"delete the {kind} {name}")
        except Refused as error:
            if error.code == 404:
                return False
            raise
        return True

    def evict(self, pod: str) -> None:
        """Ask a pod to go, as a drain does: what replaces it does not count it as a failure."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        path = f"{self._path('Pod', pod)}/eviction"
        try:
            self._json("POST", path, body=body, what=f"evict the pod {pod}")
        except Refused as error:
            if error.code != 404:  # gone already
                raise

    def log(self, pod: str, params: Mapping[str, str]) -> Iterator[bytes]:
        """Pieces of a container's log as they come."""
        what = f"read the log of the pod {pod}"
        follow = params.get("follow") == "true"
        with self._errors(what):
            import httpx2

            timeout = httpx2.Timeout(stream.OPENING, read=stream.QUIET) if follow else httpx2.Timeout(60.0)
            path = f"{self._path('Pod', pod)}/log"
            with self._http.stream("GET", path, params=dict(params), timeout=timeout) as response:
                if response.status_code >= 400:
                    response.read()
                    raise self._refusal(response.status_code, response.content, what)
                try:
                    yield from response.iter_bytes()
                except httpx2.ReadTimeout:
                    raise Quiet(f"the log of the pod {pod} was silent", fix="request it again") from None

    async def follow(self, pod: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The same for an event loop that reads many logs at once."""
        what = f"read the log of the pod {pod}"
        request = self._http.build_request("GET", f"{self._path('Pod', pod)}/log", params=dict(params))
        with self._errors(what):
            if not stream.is_straight(self._connection, request):
                async for piece in stream.in_thread(self.log(pod, params)):
                    yield piece
                return
            async with stream.get(self._connection, request) as answer:
                if answer.code >= 400:
                    said = b"".join([piece async for piece in answer.pieces()])
                    raise self._refusal(answer.code, said, what)
                async for piece in answer.pieces():
                    yield piece

    @contextmanager
    def websocket(
        self, pod: str, verb: str, params: Any, protocols: list[str], what: str
    ) -> Iterator[WebSocketSession]:
        """A two-way stream to a pod: `exec`, `attach` or `portforward`."""
        from httpx2.websockets import HTTPXWSException, WebSocketUpgradeError
        from wsproto.utilities import LocalProtocolError

        path = f"{self._path('Pod', pod)}/{verb}"
        with self._errors(what):
            try:
                with self._http.websocket(
                    path, params=params, subprotocols=protocols, queue_size=64, max_message_size_bytes=1 << 22
                ) as session:
                    yield session
            except WebSocketUpgradeError as error:
                response = error.response
                response.read()
                raise self._refusal(response.status_code, response.content, what) from None
            except (HTTPXWSException, LocalProtocolError) as error:  # the latter: it was closed as we sent
                raise Unreachable(
                    f"the connection to the pod {pod} broke: {error}", fix="try again"
                ) from None

    def allowed(self, verb: str, resource: str, group: str = "", subresource: str = "") -> bool:
        """Whether we have a right in the namespace."""
        attributes = {
            "namespace": self.namespace,
            "verb": verb,
            "resource": resource,
            "group": group,
            "subresource": subresource,
        }
        answer = self._json(
            "POST",
            "apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            body={
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            },
            what="ask for your rights",
        )
        return bool(answer["status"].get("allowed"))

    def cluster(self, path: str, what: str, params: Mapping[str, str] | None = None) -> Object:
        """Something outside the namespace, such as the nodes or the version."""
        return self._json("GET", path, params=params, what=what)

    def _path(self, kind: str, name: str = "", *, namespace: str = "") -> str:
        prefix, plural = PATHS[kind]
        inside = "" if namespace == EVERYWHERE else f"/namespaces/{namespace or self.namespace}"
        return f"{prefix}{inside}/{plural}" + (f"/{name}" if name else "")

    def _json(
        self,
        method: str,
        path: str,
        *,
        what: str,
        body: Object | None = None,
        params: Mapping[str, str] | None = None,
        content: str = "application/json",
    ) -> Object:
        with self._errors(what):
            for again in reversed(range(_TRIES)):
                response = self._http.request(
                    method,
                    path,
                    params=dict(params or {}),
                    content=None if body is None else json.dumps(body).encode(),
                    headers={"Content-Type": content, "Accept": "application/json"},
                )
                wait = response.headers.get("Retry-After", "")
                if not again or response.status_code not in _LATER or not wait.isdecimal():
                    break
                time.sleep(min(int(wait), _PATIENCE_S))  # a busy server turned it away unread, and says when
            if response.status_code >= 400:
                raise self._refusal(response.status_code, response.content, what)
            answer: Object = response.json()
            return answer

    def _refusal(self, code: int, said: bytes, what: str) -> Exception:
        try:
            text = status_text(json.loads(said))
        except ValueError:
            text = said.decode(errors="replace") or f"HTTP status {code}"
        return refusal(code, text, what=what, context=self.context)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Errors of the connection as sentences."""
        import httpx2

        place = f" of the context {self.context!r}" if self.context else ""
        try:
            yield
        except httpx2.ConnectError as error:
            if "CERTIFICATE" in str(error).upper():
                raise UserError(
                    f"the cluster{place} at {self.server} shows a certificate that its kubeconfig does not vouch for",
                    fix="take a fresh kubeconfig from the cluster's owner",
                ) from None
            raise Unreachable(
                f"the cluster{place} at {self.server} does not answer: {error}",
                fix="check the network, the VPN, and that --context names the right cluster",
            ) from None
        except httpx2.TransportError as error:
            said = str(error) or type(error).__name__
            raise Unreachable(
                f"the cluster{place} did not finish to {what}: {said}", fix="try again"
            ) from None
