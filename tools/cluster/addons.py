"""What every cluster is given through its own API: the name server, and a class of volumes."""

from __future__ import annotations

from typing import Any

from tools.cluster import build, network, volumes
from tools.cluster.api import Api

LABELS = {"k8s-app": "kube-dns"}
_COREFILE = """.:53 {
  errors
  health
  ready
  kubernetes cluster.local in-addr.arpa {
    pods insecure
    ttl 5
  }
  cache 5
  loadbalance
}
"""


def install(api: Api) -> None:
    api.apply("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:coredns", _role())
    api.apply("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:coredns", _binding())
    for kind, path, body in _name_server():
        api.apply(f"{path}/{body['metadata']['name']}", body | {"kind": kind})
    api.apply("/apis/storage.k8s.io/v1/storageclasses/standard", volumes.storage_class())


def _meta(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": "kube-system"}


def _role() -> dict[str, Any]:
    core = {
        "apiGroups": [""],
        "resources": ["endpoints", "services", "pods", "namespaces"],
        "verbs": ["list", "watch"],
    }
    slices = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "system:coredns"},
        "rules": [core, slices],
    }


def _binding() -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:coredns"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
    }


def _name_server() -> list[tuple[str, str, dict[str, Any]]]:
    core, apps = "/api/v1/namespaces/kube-system", "/apis/apps/v1/namespaces/kube-system"
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    service = {"clusterIP": network.DNS_SERVICE, "selector": LABELS, "ports": ports}
    v1 = {"apiVersion": "v1"}
    return [
        ("ServiceAccount", f"{core}/serviceaccounts", v1 | {"metadata": _meta("coredns")}),
        (
            "ConfigMap",
            f"{core}/configmaps",
            v1 | {"metadata": _meta("coredns"), "data": {"Corefile": _COREFILE}},
        ),
        ("Service", f"{core}/services", v1 | {"metadata": _meta("kube-dns"), "spec": service}),
        (
            "Deployment",
            f"{apps}/deployments",
            {"apiVersion": "apps/v1", "metadata": _meta("coredns"), "spec": _deployment()},
        ),
    ]


def _deployment() -> dict[str, Any]:
    container = {
        "name": "coredns",
        "image": build.COREDNS_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
    }
    lost = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    apart = {"labelSelector": {"matchLabels": LABELS}, "topologyKey": "kubernetes.io/hostname"}
    pod = {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "priorityClassName": "system-cluster-critical",
        # Names must go on working when a test takes a node away: two, apart, and moved soon. That they are apart is
        # demanded, not asked for: whichever node is ready first would get both. On a single node the second one waits.
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5} for key in lost
        ],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    return {
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
    }
