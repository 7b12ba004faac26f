"""The permissions that a user needs in a namespace: one list for the Role, the docs and `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on a resource, and what they are for."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    purpose: str


_MANAGED = ("get", "list", "create", "patch", "delete")

RIGHTS = (
    Right("", "configmaps", _MANAGED, "the run's ConfigMap, the code and the files"),
    Right("", "services", _MANAGED, "stable host names and endpoints"),
    Right("", "secrets", ("get", "create", "patch", "delete"), "the run's key"),
    Right("", "pods", ("get", "list", "patch", "delete"), "status, restart, scale"),
    Right("", "pods/log", ("get",), "logs"),
    Right("", "pods/exec", ("get", "create"), "exec, cp"),
    Right("", "pods/portforward", ("get", "create"), "port-forward, metrics"),
    Right("", "pods/eviction", ("create",), "restart"),
    Right("", "events", ("list",), "why a replica is pending"),
    Right("batch", "jobs", _MANAGED, "roles that finish"),
    Right("apps", "statefulsets", _MANAGED, "roles that always restart"),
    Right("networking.k8s.io", "networkpolicies", _MANAGED, "who may reach the pods"),
    Right("networking.k8s.io", "ingresses", _MANAGED, "endpoints exposed by an Ingress"),
)


def role(name: str = "callsheet-user") -> dict[str, Any]:
    """A Role with exactly these rights."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [right.group], "resources": [right.resource], "verbs": list(right.verbs)}
            for right in RIGHTS
        ],
    }
