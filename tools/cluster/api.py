"""A few calls to the API server, so that the tool needs no client library and no kubectl."""

from __future__ import annotations

import json
import ssl
import weakref
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from http.client import HTTPException, HTTPSConnection
from typing import Any

from tools.cluster import pki
from tools.cluster.errors import ClusterError
from tools.cluster.state import Cluster

Object = dict[str, Any]
WATCH_S = 10
"""A watch is short: after a cut cable it may be dead without knowing."""


class Api:
    """The API server of one cluster, spoken to as its administrator, over one connection."""

    def __init__(self, cluster: Cluster) -> None:
        folder = pki.folder(cluster)
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.load_cert_chain(folder / "admin.crt", folder / "admin.key")
        self._context = context
        self._connection = HTTPSConnection(cluster.api_host, pki.API_PORT, context=context, timeout=20)
        weakref.finalize(self, self._connection.close)

    def _exchange(self, method: str, path: str, body: bytes | None, kind: str) -> tuple[int, bytes]:
        while True:
            fresh = self._connection.sock is None
            try:
                self._connection.request(method, path, body, {"Content-Type": kind})
                answer = self._connection.getresponse()
                return answer.status, answer.read()
            except (OSError, HTTPException) as error:
                self._connection.close()
                # A connection that has been idle may be gone for good reasons; a new one may not.
                if fresh:
                    where = f"{self._connection.host}:{self._connection.port}"
                    raise ClusterError(f"the API server at {where} did not answer: {error}") from None

    def call(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Object:
        data = None if body is None else json.dumps(body).encode()
        status, answer = self._exchange(method, path, data, kind)
        if status >= 300:
            raise ClusterError(
                f"the API server answered {status} to {method} {path}: {answer.decode()[:300]}"
            )
        found: Object = json.loads(answer)
        return found

    def ready(self) -> bool:
        try:
            return self._exchange("GET", "/readyz", None, "text/plain")[0] == 200
        except ClusterError:
            return False

    def apply(self, path: str, wanted: Object) -> None:
        """Server-side apply: makes the object or brings it to the wanted shape."""
        self.call(
            "PATCH",
            f"{path}?fieldManager=callsheet-cluster&force=true",
            wanted,
            "application/apply-patch+yaml",
        )

    def watch(self, path: str, version: str) -> Iterator[Object]:
        """What happens to the objects of a list after that version of it; ends by itself in some seconds."""
        host, port = self._connection.host, self._connection.port
        with closing(HTTPSConnection(host, port, context=self._context, timeout=WATCH_S + 5)) as own:
            try:
                own.request("GET", f"{path}?watch=true&resourceVersion={version}&timeoutSeconds={WATCH_S}")
                answer = own.getresponse()
                if answer.status >= 300:
                    raise ClusterError(f"the API server answered {answer.status} to a watch of {path}")
                yield from map(json.loads, answer)
            except (OSError, HTTPException) as error:
                raise ClusterError(f"the watch of {path} broke: {error}") from None

    def nodes(self) -> dict[str, Object]:
        return {node["metadata"]["name"]: node for node in self.call("GET", "/api/v1/nodes")["items"]}

    def delete(self, path: str) -> None:
        try:
            self.call("DELETE", path)
        except ClusterError as error:
            if " 404 " not in error.message:
                raise


def is_ready(node: Object | None, since: float = 0) -> bool:
    """Whether a node says that it is ready, and said so after the given time (in seconds since 1970)."""
    for condition in (node or {}).get("status", {}).get("conditions", []):
        if condition["type"] == "Ready":
            said = datetime.fromisoformat(condition["lastHeartbeatTime"])
            return bool(condition["status"] == "True" and said.timestamp() > since)
    return False
