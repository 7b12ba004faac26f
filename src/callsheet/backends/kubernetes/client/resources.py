"""Where each kind of object lives below the API server's address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
"""As a namespace: all of them."""


def path_of(kind: str, name: str = "", *, namespace: str) -> str:
    """The path of an object, or of all objects of a kind."""
    prefix, plural = PATHS[kind]
    inside = "" if namespace == EVERYWHERE else f"/namespaces/{namespace}"
    return f"{prefix}{inside}/{plural}" + (f"/{name}" if name else "")


def selection(labels: Mapping[str, str] | None, fields: str) -> dict[str, str]:
    """The query parameters that select objects by labels and fields."""
    joined = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
    return {key: value for key, value in (("labelSelector", joined), ("fieldSelector", fields)) if value}
