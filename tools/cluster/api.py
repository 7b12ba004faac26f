"""A few calls to the API server, so that the tool needs no client library and no kubectl."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from datetime import datetime
from typing import Any

from tools.cluster import pki
from tools.cluster.errors import ClusterError
from tools.cluster.state import Cluster

Object = dict[str, Any]


class Api:
    """The API server of one cluster, spoken to as its administrator."""

    def __init__(self, cluster: Cluster) -> None:
        folder = pki.folder(cluster)
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.load_cert_chain(folder / "admin.crt", folder / "admin.key")
        self._base = f"https://{cluster.api_host}:{pki.API_PORT}"
        # No proxy of the user's stands between this machine and itself.
        self._open = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        ).open

    def call(
        self, method: str, path: str, body: Object | None = None, kind: str = "application/json"
    ) -> Object:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": kind}, method=method)  # noqa: S310
        try:
            with self._open(request, timeout=20) as answer:
                found: Object = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            raise ClusterError(
                f"the API server answered {error.code} to {method} {path}: {error.read().decode()[:300]}"
            ) from None
        except OSError as error:
            raise ClusterError(f"the API server at {self._base} did not answer: {error}") from None

    def ready(self) -> bool:
        try:
            with self._open(f"{self._base}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def apply(self, path: str, wanted: Object) -> None:
        """Server-side apply: makes the object or brings it to the wanted shape."""
        self.call(
            "PATCH",
            f"{path}?fieldManager=callsheet-cluster&force=true",
            wanted,
            "application/apply-patch+yaml",
        )

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
