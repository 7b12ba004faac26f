"""The cluster itself: its nodes and what is free on them, and whether it has everything that a run needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from callsheet import contract
from callsheet.backends.cluster import Finding, Node
from callsheet.backends.kubernetes.apply import parallel
from callsheet.backends.kubernetes.client.api import EVERYWHERE, Api, Object
from callsheet.backends.kubernetes.client.errors import ApiError
from callsheet.backends.kubernetes.rights import RIGHTS, Right
from callsheet.errors import CallsheetError

_OLDEST = 29
"""Minor version 1.29: the first with native sidecars and per-index backoff on by default."""
_BUILT_IN = ("kubernetes.io/", "k8s.io/", "beta.kubernetes.io/")


def nodes(api: Api) -> list[Node]:
    """Every node, with what you need to write a selector."""
    items = api.cluster("api/v1/nodes", "list nodes")["items"]
    used = _gpus_used(api) if any(_gpus(node["status"].get("allocatable")) for node in items) else {}
    return [_node(node, used) for node in items]


def _node(node: Object, used: dict[str, int] | None) -> Node:
    name = node["metadata"]["name"]
    offers = node["status"].get("allocatable") or {}
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions") or []}
    labels = {
        key: value
        for key, value in (node["metadata"].get("labels") or {}).items()
        if not any(mark in key for mark in _BUILT_IN)
    }
    taints = [
        f"{taint['key']}{'=' + taint['value'] if taint.get('value') else ''}:{taint['effect']}"
        for taint in node["spec"].get("taints") or []
    ]
    return Node(
        name=name,
        ready=conditions.get("Ready") == "True",
        cpu=str(offers.get("cpu", "")),
        memory=str(offers.get("memory", "")),
        gpus=_gpus(offers),
        gpus_used=None if used is None else used.get(name, 0),
        labels=labels,
        taints=taints,
    )


def _gpus(resources: Object | None) -> int:
    return int((resources or {}).get(contract.GPU_RESOURCE, 0))


def _gpus_used(api: Api) -> dict[str, int] | None:
    try:
        pods = api.objects("Pod", namespace=EVERYWHERE, fields="status.phase!=Succeeded,status.phase!=Failed")
    except ApiError as error:
        if error.code == 403:
            return None
        raise
    used: dict[str, int] = {}
    for pod in pods:
        taken = sum(_gpus(c.get("resources", {}).get("limits")) for c in pod["spec"]["containers"])
        node = pod["spec"].get("nodeName", "")
        used[node] = used.get(node, 0) + taken
    return used


def examine(connect: Callable[[], Api]) -> Iterator[Finding]:
    """Check everything that a run needs, in the order in which it would fail; ends where the rest would be pointless."""
    try:
        api = connect()
        version = api.cluster("version", "read its version")
    except CallsheetError as error:
        yield Finding("cluster", False, error.message, error.fix)
        return
    place = f"{api.context or 'in this pod'}, {api.server}"
    minor = int("".join(filter(str.isdigit, version.get("minor", "0"))) or 0)
    yield Finding(
        "cluster",
        minor >= _OLDEST,
        f"{place}, {version.get('gitVersion')}",
        f"Callsheet needs Kubernetes 1.{_OLDEST} or newer",
    )
    try:
        missing = _missing_rights(api)
    except CallsheetError as error:
        yield Finding("credentials", False, error.message, error.fix)
        return
    yield Finding("credentials", True, "accepted")
    yield _namespace(api)
    for right, verbs in missing:
        shown = f"{right.resource}{'.' + right.group if right.group else ''}"
        yield Finding(
            "rights",
            False,
            f"missing in {api.namespace!r}: {', '.join(verbs)} {shown} (for: {right.purpose})",
            "ask the cluster's owner; `callsheet doctor --role` prints the Role that is needed",
        )
    if not missing:
        yield Finding("rights", True, f"complete in the namespace {api.namespace!r}")
    yield _dns(api)
    yield from _machines(api)


def _namespace(api: Api) -> Finding:
    try:
        api.cluster(f"api/v1/namespaces/{api.namespace}", "read the namespace")
    except ApiError as error:
        if error.code != 403:
            fix = "choose another one with -n, or create it"
            return Finding("namespace", False, f"there is no namespace {api.namespace!r}", fix)
    return Finding("namespace", True, api.namespace)


def _missing_rights(api: Api) -> list[tuple[Right, list[str]]]:
    def missing(right: Right) -> tuple[Right, list[str]]:
        resource, _, inside = right.resource.partition("/")
        return right, [verb for verb in right.verbs if not api.allowed(verb, resource, right.group, inside)]

    return [(right, verbs) for right, verbs in parallel(missing, RIGHTS) if verbs]


def _dns(api: Api) -> Finding:
    """Replicas reach each other by name."""
    system = api.within("kube-system")
    try:
        slices = system.cluster(
            "apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices",
            "read the cluster's DNS",
            {"labelSelector": "kubernetes.io/service-name=kube-dns"},
        )["items"]
    except ApiError as error:
        if error.code == 403:
            return Finding("DNS", True, "not checked: that needs a right in kube-system", needed=False)
        raise
    ready = sum(
        len(endpoint.get("addresses") or [])
        for part in slices
        for endpoint in part.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready")
    )
    said = (
        f"{ready} server{'' if ready == 1 else 's'} ready"
        if ready
        else "no DNS server is ready in kube-system"
    )
    return Finding("DNS", ready > 0, said, "ask the cluster's owner to start CoreDNS")


def _machines(api: Api) -> Iterator[Finding]:
    try:
        known = nodes(api)
    except ApiError as error:
        if error.code != 403:
            raise
        yield Finding("nodes", True, "not checked: the right to list nodes is missing", needed=False)
        return
    ready = sum(node.ready for node in known)
    yield Finding("nodes", ready > 0, f"{ready} of {len(known)} ready", "ask the cluster's owner")
    gpus = sum(node.gpus for node in known)
    said = f"{gpus} on {sum(node.gpus > 0 for node in known)} nodes" if gpus else "no node has any"
    fix = "" if gpus else "roles that request GPUs will wait; the nodes need the NVIDIA device plugin"
    yield Finding("GPUs", gpus > 0, said, fix, needed=False)
