"""From a kubeconfig, or from inside a pod, to a client of the cluster. Its libraries are imported only then."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from callsheet.backends.kubernetes.client import kubeconfig
from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.backends.kubernetes.client.async_api import AsyncApi
    from callsheet.event_loop import LoopThread


@dataclass(frozen=True, eq=False)
class Connection:
    """A client of one cluster, and a loop for those who have none; both end with the connection."""

    client: AsyncApi
    loop: LoopThread
    context: str
    """Name of the context; empty inside a pod."""
    namespace: str


def connect(context: str = "", namespace: str = "") -> Connection:
    """A client for a context of the kubeconfig; without one, for the current context or the pod's own cluster."""
    try:
        from callsheet.backends.kubernetes.client import credentials
        from callsheet.backends.kubernetes.client.async_api import AsyncApi
        from callsheet.backends.kubernetes.client.http import HttpClient
        from callsheet.event_loop import LoopThread
    except ImportError as error:
        raise UserError(
            f"the Kubernetes client library is not installed ({error.name} is missing)",
            fix="pip install 'callsheet[kubernetes]'",
        ) from None
    access = kubeconfig.read(context)
    server = str(access.cluster.get("server") or "http://localhost:8080")
    proxy = _proxy(access.cluster, server)
    http = HttpClient(
        server,
        credentials.credentials(access.cluster, access.user, proxy),
        context=access.context,
        server_name=str(access.cluster.get("tls-server-name") or ""),
        proxy=proxy,
    )
    loop = LoopThread("callsheet-kubernetes", http.close)
    namespace = namespace or access.namespace
    made = Connection(AsyncApi(http, namespace), loop, access.context, namespace)
    weakref.finalize(made, loop.close)
    return made


def _proxy(cluster: Mapping[str, Any], server: str) -> str:
    """The URL of the proxy on the way; empty without one."""
    proxy, whose = str(cluster.get("proxy-url") or ""), "proxy-url of the kubeconfig"
    if not proxy:
        proxies, url = getproxies(), urlsplit(server)
        proxy = proxies.get(url.scheme) or proxies.get("all") or ""
        if not proxy or proxy_bypass(url.hostname or ""):
            return ""
        whose = "proxy that the environment names (HTTPS_PROXY, ALL_PROXY)"
        proxy = proxy if "://" in proxy else f"http://{proxy}"
    if urlsplit(proxy).scheme not in ("http", "https") or not urlsplit(proxy).hostname:
        raise UserError(
            f"the {whose} cannot be used: {proxy}", fix="name a proxy http://host:port or https://host:port"
        )
    return proxy
