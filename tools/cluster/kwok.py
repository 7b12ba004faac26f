"""Simulated nodes for tests of scale: real objects of the API server, and pods that only say that they run."""

from __future__ import annotations

from pathlib import Path

from tools.cluster import build
from tools.cluster.api import Api
from tools.cluster.errors import ClusterError
from tools.cluster.state import Cluster
from tools.cluster.units import Part
from tools.cluster.versions import built

ANNOTATION = "kwok.x-k8s.io/node"
MAX_SIMULATED = 10_000


def _wanted(cluster: Cluster) -> Path:
    """The simulator starts when this file is there."""
    return cluster.folder / "kwok-wanted"


def part(cluster: Cluster) -> Part:
    argv = [
        str(build.program("kwok")),
        f"--kubeconfig={cluster.kubeconfig}",
        f"--config={built() / build.STAGES}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={ANNOTATION}=fake",
        "--cidr=10.245.0.0/16",
        f"--node-ip={cluster.api_host}",
        "--node-port=10247",
        "--node-lease-duration-seconds=40",
        "--v=WARN",
    ]
    return Part("kwok", argv, needs=[str(cluster.ready_file), str(_wanted(cluster))])


def name(number: int) -> str:
    return f"simulated-{number}"


def set_count(cluster: Cluster, count: int) -> None:
    """Make the cluster have exactly this many simulated nodes."""
    if not 0 <= count <= MAX_SIMULATED:
        raise ClusterError(f"{count} simulated nodes cannot be had", f"ask for 0 to {MAX_SIMULATED}")
    _wanted(cluster).touch()
    api = Api(cluster)
    wanted = {name(number) for number in range(count)}
    there = {
        node for node, found in api.nodes().items() if ANNOTATION in found["metadata"].get("annotations", {})
    }
    for node in sorted(there - wanted):
        api.delete(f"/api/v1/nodes/{node}")
    for node in sorted(wanted - there):
        api.call("POST", "/api/v1/nodes", _node(node))


def _node(node: str) -> dict[str, object]:
    room = {"cpu": "64", "memory": "512Gi", "pods": "1000", "ephemeral-storage": "1Ti"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node,
            "annotations": {ANNOTATION: "fake"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": node, "kubernetes.io/os": "linux"},
        },
        # Only pods that ask for it land here: everything else is meant to run.
        "spec": {"taints": [{"key": ANNOTATION, "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": room, "capacity": room},
    }
