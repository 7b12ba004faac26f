"""What a user needs to know of the nodes to write a selector."""

from __future__ import annotations

from typing import Any, cast

from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.client.errors import ApiError
from callsheet.backends.kubernetes.observe.cluster import Node, nodes

GPU = "nvidia.com/gpu"
NODE: dict[str, Any] = {
    "metadata": {"name": "big", "labels": {"pool": "gpu", "kubernetes.io/hostname": "big"}},
    "spec": {
        "taints": [
            {"key": GPU, "effect": "NoSchedule"},
            {"key": "team", "value": "rl", "effect": "NoExecute"},
        ]
    },
    "status": {
        "allocatable": {"cpu": "8", "memory": "32Gi", GPU: "4"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


class Cluster:
    """An API server with one node, and pods on it that have taken three of its GPUs."""

    def __init__(self, *, allowed: bool) -> None:
        self.allowed = allowed

    def cluster(self, path: str, what: str) -> dict[str, Any]:
        return {"items": [NODE]}

    def objects(self, kind: str, **_: Any) -> list[dict[str, Any]]:
        if not self.allowed:
            raise ApiError(403, "no", "no")
        wants = [{"resources": {"limits": {GPU: "1"}}}, {"resources": {"limits": {GPU: "2"}}}, {}]
        return [{"spec": {"nodeName": "big", "containers": wants}}, {"spec": {"containers": wants}}]


def look(*, allowed: bool) -> Node:
    (node,) = nodes(cast(Api, Cluster(allowed=allowed)))
    return node


def test_a_node_tells_its_labels_taints_and_free_gpus() -> None:
    node = look(allowed=True)
    assert (node.name, node.ready, node.cpu, node.memory) == ("big", True, "8", "32Gi")
    assert node.labels == {"pool": "gpu"}, "without those that every node has"
    assert node.taints == [f"{GPU}:NoSchedule", "team=rl:NoExecute"]
    assert (node.gpus, node.gpus_used) == (4, 3)


def test_who_may_not_see_the_pods_of_others_is_not_told_how_many_gpus_are_free() -> None:
    assert look(allowed=False).gpus_used is None
