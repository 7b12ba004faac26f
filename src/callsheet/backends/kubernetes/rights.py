"""What a user must be allowed to do in a namespace: one list, from which the Role, the docs and `doctor` come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on a resource, and what for."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    purpose: str


_MADE = ("get", "list", "create", "patch", "delete")

RIGHTS = (
    Right("", "configmaps", _MADE, "the run's ConfigMap, the code and the files"),
    Right("", "services", _MADE, "stable names and endpoints"),
    Right("", "secrets", ("get", "create", "patch", "delete"), "the run's key"),
    Right("", "pods", ("get", "list", "patch", "delete"), "status, restart, scale"),
    Right("", "pods/log", ("get",), "logs"),
    Right("", "pods/exec", ("get", "create"), "exec, cp"),
    Right("", "pods/portforward", ("get", "create"), "port-forward, metrics"),
    Right("", "pods/eviction", ("create",), "restart"),
    Right("", "events", ("list",), "why a replica waits"),
    Right("batch", "jobs", _MADE, "roles that finish"),
    Right("apps", "statefulsets", _MADE, "roles that restart always"),
    Right("networking.k8s.io", "networkpolicies", _MADE, "who may reach the pods"),
    Right("networking.k8s.io", "ingresses", _MADE, "endpoints exposed by an Ingress"),
)


def role(name: str = "callsheet-user") -> dict[str, Any]:
    """The Role with these rights and no others."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)}
            for right in RIGHTS
        ],
    }
