"""From a kubeconfig, or from inside a pod, to an HTTP client that the cluster trusts and that trusts the cluster.

The HTTP library is imported only when a cluster is asked.
"""

from __future__ import annotations

import ssl
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from callsheet.backends.kubernetes.client import kubeconfig
from callsheet.errors import UserError

if TYPE_CHECKING:
    import httpx2

TIMEOUT = 15.0


@dataclass(frozen=True, eq=False)
class Connection:
    """An open door to one cluster."""

    http: httpx2.Client
    verify: ssl.SSLContext
    context: str
    """Name of the context; empty inside a pod."""
    namespace: str
    server: str
    server_name: str | None
    """Whom the server's certificate names, where that is not the host in its address."""
    proxy: bool
    """Whether the kubeconfig names a proxy on the way."""


def connect(context: str = "", namespace: str = "") -> Connection:
    """A client for a context of the kubeconfig; without one, for the current context or the pod's own cluster."""
    try:
        import httpx2

        from callsheet.backends.kubernetes.client import credentials
    except ImportError as error:
        raise UserError(
            f"the Kubernetes client library is not installed ({error.name} is missing)",
            fix="pip install 'callsheet[kubernetes]'",
        ) from None
    access = kubeconfig.read(context)
    server = str(access.cluster.get("server") or "http://localhost:8080")
    verify = credentials.trust(access.cluster, access.user)
    name = str(access.cluster.get("tls-server-name") or "") or None
    proxy = access.cluster.get("proxy-url")

    def call_it_by_name(request: httpx2.Request) -> None:
        request.extensions["sni_hostname"] = name

    try:
        http = httpx2.Client(
            base_url=server,
            verify=verify,
            auth=credentials.identity(access.cluster, access.user, verify),
            timeout=httpx2.Timeout(TIMEOUT),
            # One connection for each log that is followed.
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
            proxy=proxy or None,
            event_hooks={"request": [call_it_by_name]} if name else None,
        )
    except (ValueError, ImportError) as error:
        whose = (
            "proxy-url of the kubeconfig"
            if proxy
            else "proxy that the environment names (HTTPS_PROXY, ALL_PROXY)"
        )
        raise UserError(
            f"the {whose} cannot be used: {error}", fix="name a proxy http://host:port or https://host:port"
        ) from None
    made = Connection(http, verify, access.context, namespace or access.namespace, server, name, bool(proxy))
    weakref.finalize(made, http.close)
    return made
