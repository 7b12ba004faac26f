"""The kubeconfig as kubectl reads it: several files as one, a context chosen; or the account of the pod we are in."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callsheet.errors import UserError

DEFAULT_NAMESPACE = "default"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PATHS = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}


@dataclass(frozen=True, slots=True)
class Access:
    """One context of a kubeconfig, with what it names."""

    context: str
    """Name of the context; empty inside a pod."""
    namespace: str
    cluster: Mapping[str, Any]
    user: Mapping[str, Any]


def read(context: str = "") -> Access:
    """The context of that name; without one, the current context, or the pod's own cluster."""
    files = [path for path in _files() if path.is_file()]
    if not files and (_ACCOUNT / "token").is_file() and not context:
        return _of_the_pod()
    if not files:
        looked = ", ".join(str(path) for path in _files())
        raise UserError(
            f"there is no kubeconfig: {looked} does not exist",
            fix="set KUBECONFIG to the file that your cluster's owner gave you",
        )
    return _choose(_merge(files), context)


def _files() -> list[Path]:
    named = os.environ.get("KUBECONFIG", "")
    return [Path(part).expanduser() for part in named.split(os.pathsep) if part] or [
        Path.home() / ".kube" / "config"
    ]


def _of_the_pod() -> Access:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise UserError(
            "this pod has a service account, but KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set",
            fix="set KUBECONFIG to a kubeconfig",
        )
    where = f"[{host}]" if ":" in host else host
    return Access(
        context="",
        namespace=(_ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or DEFAULT_NAMESPACE,
        cluster={"server": f"https://{where}:{port}", "certificate-authority": str(_ACCOUNT / "ca.crt")},
        user={"tokenFile": str(_ACCOUNT / "token")},
    )


def _merge(files: Iterable[Path]) -> dict[str, Any]:
    """Several files as one: of two entries with one name, and of two current contexts, the first counts."""
    whole: dict[str, Any] = {"cluster": {}, "context": {}, "user": {}, "current-context": ""}
    for path in files:
        try:
            data = _data(path)
            for kind in ("cluster", "context", "user"):
                for item in data.get(f"{kind}s") or []:
                    inner = _absolute(kind, item.get(kind) or {}, path.parent)
                    whole[kind].setdefault(str(item["name"]), inner)
            whole["current-context"] = whole["current-context"] or str(data.get("current-context") or "")
        except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} is not a kubeconfig: {error}", fix="set KUBECONFIG to another file"
            ) from None
    return whole


def _data(path: Path) -> dict[str, Any]:
    """The content of a file, read with the limits of an experiment file: PyYAML crashes on lists that are nested too deeply."""
    from callsheet.spec import yaml_reader as yamldoc
    from callsheet.spec import yaml_tree as tree

    try:
        documents, problems = yamldoc.read(yamldoc.decode(path.read_bytes()))
    except yamldoc.Unreadable as error:
        documents, problems = [], [error.problem]
    if problems:
        raise ValueError(f"line {problems[0].line}: {problems[0].message}")
    data = tree.to_data(documents[0].root) if documents else {}
    if not isinstance(data, dict):
        raise TypeError("it is not a mapping")
    return data


def _absolute(kind: str, item: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The item with absolute paths."""
    paths = {key: str(folder.resolve() / item[key]) for key in _PATHS.get(kind, ()) if item.get(key)}
    return dict(item) | paths


def _choose(config: Mapping[str, Any], context: str) -> Access:
    known = ", ".join(sorted(config["context"])) or "none"
    wanted = context or config["current-context"]
    if not wanted:
        raise UserError(
            "the kubeconfig names no current context", fix=f"choose one with --context; there are: {known}"
        )
    if wanted not in config["context"]:
        raise UserError(f"the kubeconfig has no context {wanted!r}", fix=f"choose one of: {known}")
    parts = config["context"][wanted]
    for kind in ("cluster", "user"):
        name = str(parts.get(kind) or "")
        if (name or kind == "cluster") and name not in config[kind]:
            raise UserError(
                f"the context {wanted!r} names the {kind} {name!r}, which the kubeconfig does not have",
                fix="fix the kubeconfig, or choose another context with --context",
            )
    return Access(
        context=wanted,
        namespace=str(parts.get("namespace") or DEFAULT_NAMESPACE),
        cluster=config["cluster"][str(parts["cluster"])],
        user=config["user"].get(str(parts.get("user") or "")) or {},
    )
