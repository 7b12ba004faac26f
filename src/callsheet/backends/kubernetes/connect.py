"""From a kubeconfig, or from inside a pod, to an HTTP client that the cluster trusts and that trusts the cluster.

The client library reads credentials and certificates; it is imported here and only when a cluster is asked.
"""

from __future__ import annotations

import os
import ssl
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callsheet.errors import UserError

if TYPE_CHECKING:
    import httpx2
    from lightkube.config.kubeconfig import KubeConfig, SingleConfig

TIMEOUT = 15.0
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_EXEC_V1 = "client.authentication.k8s.io/v1"
_PATHS = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}


@dataclass(frozen=True, eq=False)
class Connection:
    """An open door to one cluster."""

    http: httpx2.Client
    verify: ssl.SSLContext
    context: str
    """Name of the context; empty inside a pod."""
    namespace: str
    server: str


def connect(context: str = "", namespace: str = "") -> Connection:
    """A client for a context of the kubeconfig; without one, for the current context or the pod's own cluster."""
    try:
        import httpx2
        from lightkube.config.client_adapter import user_auth, verify_cluster
        from lightkube.core.exceptions import ConfigError
    except ImportError as error:
        raise UserError(
            f"the Kubernetes client library is not installed ({error.name} is missing)",
            fix="pip install 'callsheet[kubernetes]'",
        ) from None
    try:
        config = _config(context)
        assert config.user is not None
        # The context is made of the cluster's own authority alone: SSL_CERT_FILE and the like play no part.
        verify = verify_cluster(config.cluster, config.user, config.abs_file)
        auth = user_auth(config.user)
    except ConfigError as error:
        raise UserError(f"the kubeconfig cannot be used: {error}", fix="see: kubectl config view") from None
    except OSError as error:
        raise UserError(
            f"a certificate that the kubeconfig names cannot be read: {error}", fix="see: kubectl config view"
        ) from None
    http = httpx2.Client(
        base_url=config.cluster.server,
        verify=verify,
        auth=auth,
        timeout=httpx2.Timeout(TIMEOUT),
        # One connection for each log that is followed.
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
    )
    made = Connection(http, verify, config.context_name, namespace or config.namespace, config.cluster.server)
    weakref.finalize(made, http.close)
    return made


def _config(context: str) -> SingleConfig:
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.config.models import User

    files = [path for path in _files() if path.is_file()]
    if not files and _ACCOUNT.is_file() and not context:
        found = KubeConfig.from_service_account().get()
        assert found is not None
        return found._replace(context_name="")
    if not files:
        looked = ", ".join(str(path) for path in _files())
        raise UserError(
            f"there is no kubeconfig: {looked} is not there",
            fix="set KUBECONFIG to the file that your cluster's owner gave you",
        )
    merged = _merge(files)
    chosen = _choose(merged, context)
    user = chosen.user or User()
    if user.exec is not None and user.exec.apiVersion == _EXEC_V1:
        # The same answer as in v1beta1, the newest version that the library knows.
        user.exec.apiVersion = f"{_EXEC_V1}beta1"
    return chosen._replace(user=user)


def _choose(config: KubeConfig, context: str) -> SingleConfig:
    known = ", ".join(sorted(config.contexts)) or "none"
    wanted = context or config.current_context or ""
    if not wanted:
        raise UserError(
            "the kubeconfig names no current context", fix=f"choose one with --context; there are: {known}"
        )
    if wanted not in config.contexts:
        raise UserError(f"the kubeconfig has no context {wanted!r}", fix=f"choose one of: {known}")
    parts = config.contexts[wanted]
    for kind, name, there in (
        ("cluster", parts.cluster, config.clusters),
        ("user", parts.user, config.users),
    ):
        if name and name not in there:
            raise UserError(
                f"the context {wanted!r} names the {kind} {name!r}, which the kubeconfig does not have",
                fix="mend the kubeconfig, or choose another context with --context",
            )
    found = config.get(wanted)
    assert found is not None
    return found


def _files() -> list[Path]:
    named = os.environ.get("KUBECONFIG", "")
    return [Path(part).expanduser() for part in named.split(os.pathsep) if part] or [
        Path.home() / ".kube" / "config"
    ]


def _merge(files: Iterable[Path]) -> KubeConfig:
    """Several files as one, as kubectl reads them: of two things with one name, the first counts."""
    import yaml
    from lightkube.config.kubeconfig import KubeConfig

    whole: dict[str, Any] = {"clusters": [], "contexts": [], "users": []}
    for path in files:
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
            for key in ("clusters", "contexts", "users"):
                items = [_absolute(key.removesuffix("s"), item, path.parent) for item in data.get(key) or []]
                # Of two equal names the later wins in the library's mapping; the first file must.
                whole[key] = items + whole[key]
        except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} is not a kubeconfig: {error}", fix="set KUBECONFIG to another file"
            ) from None
        whole.setdefault("current-context", data.get("current-context") or None)
        if not whole["current-context"]:
            del whole["current-context"]
    return KubeConfig.from_dict(whole, fname=None)


def _absolute(kind: str, item: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The item with paths that hold from anywhere."""
    inner = dict(item.get(kind) or {})
    for key in _PATHS.get(kind, ()):
        if inner.get(key):
            inner[key] = str(folder.resolve() / inner[key])
    return item | {kind: inner}
