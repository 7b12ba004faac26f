"""Nodes stop, are cut off and come back; GPUs appear; a thousand nodes are pretended. On a cluster of its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from kube import Kube, eventually, pod

from tools.cluster import build, faults, images, kwok, lifecycle, state
from tools.cluster.errors import ClusterError

pytestmark = pytest.mark.exclusive


@pytest.fixture(scope="module")
def own(start: Callable[[str, int], Kube]) -> Kube:
    return start("faults", 2)


def record(own: Kube) -> state.Cluster:
    assert own.own is not None
    return state.get(own.own.name)


def pause(name: str, node: str = "", **container: object) -> dict[str, object]:
    found = pod(name, build.PAUSE_IMAGE, ["/pause"], imagePullPolicy="Never", **container)
    if node:
        found["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return found


def test_a_stopped_node_is_noticed_and_comes_back_with_its_pods(own: Kube) -> None:
    own.apply(pause("sleeper", "node-1"))
    own.ready("pod", "sleeper")
    faults.stop_node(record(own), "node-1")
    eventually(lambda: own.node_ready("node-1") == "Unknown")
    assert own.node_ready("node-0") == "True"
    assert faults.heal(record(own)) == ["node-1"]
    eventually(lambda: own.get("pod", "sleeper")["status"]["containerStatuses"][0]["restartCount"] >= 1)
    own.ready("pod", "sleeper")


def test_a_partitioned_node_is_noticed_while_its_pods_run_on(own: Kube) -> None:
    own.apply(pause("hermit", "node-1"))
    own.ready("pod", "hermit")
    faults.partition_node(record(own), "node-1")
    assert faults.condition(record(own), "node-1", ready=False) == "partitioned"
    eventually(lambda: own.node_ready("node-1") == "Unknown")
    assert faults.heal(record(own)) == ["node-1"]
    own.ready("pod", "hermit")
    assert own.get("pod", "hermit")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_the_api_server_goes_away_and_comes_back_while_pods_run_on(own: Kube) -> None:
    own.apply(pause("steady"))
    own.ready("pod", "steady")
    faults.stop_api(record(own))
    assert "refused" in own.refused("get", "nodes")
    faults.heal(record(own))
    assert own.get("pod", "steady")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_pod_that_wants_a_gpu_waits_for_a_node_that_has_one(own: Kube) -> None:
    own.apply(pause("greedy", resources={"limits": {faults.GPU: 2}}))
    eventually(lambda: "Insufficient nvidia.com/gpu" in own("get", "events", "-o", "json"))
    faults.set_gpus(record(own), "node-1", 2)
    own.ready("pod", "greedy")
    assert own.get("pod", "greedy")["spec"]["nodeName"] == "node-1"
    own("delete", "pod", "greedy")
    faults.set_gpus(record(own), "node-1", 0)
    eventually(lambda: faults.GPU not in own.get("node", "node-1")["status"]["allocatable"])


def test_a_node_keeps_its_gpus_over_a_restart(own: Kube) -> None:
    faults.set_gpus(record(own), "node-1", 4)
    faults.stop_node(record(own), "node-1")
    faults.heal(record(own))
    assert own.get("node", "node-1")["status"]["allocatable"][faults.GPU] == "4"


def test_a_node_can_be_added(own: Kube) -> None:
    assert lifecycle.add_node(record(own)) == "node-2"
    own.apply(pause("newcomer", "node-2"))
    own.ready("pod", "newcomer")


def test_simulated_nodes_take_pods_that_ask_for_them(own: Kube) -> None:
    kwok.set_count(record(own), 20)
    eventually(lambda: all(own.node_ready(kwok.name(number)) == "True" for number in range(20)))
    template = pause("many")
    spec = template["spec"]
    assert isinstance(spec, dict)
    spec["nodeSelector"] = {"type": "kwok"}
    spec["tolerations"] = [{"key": kwok.ANNOTATION, "operator": "Exists"}]
    labels = {"app": "many"}
    own.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "many"},
            "spec": {
                "replicas": 200,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
    )
    own.ready("deployment", "many")
    assert all(node.startswith("simulated-") for node in own.nodes_of("app=many").values())
    own("delete", "deployment", "many")
    kwok.set_count(record(own), 0)
    assert len(own.get("nodes")["items"]) == len(record(own).nodes)


def test_an_image_archive_is_loaded_onto_every_node(own: Kube) -> None:
    images.load(record(own), str(build.image("pause")))
    for node in own.get("nodes")["items"]:
        names = [name for image in node["status"]["images"] for name in image["names"]]
        assert build.PAUSE_IMAGE in names


def test_a_kubelet_that_is_killed_is_started_again(own: Kube) -> None:
    of_node_0 = ["pgrep", "-f", f"kubelet --config={record(own).folder}/node-0/"]
    before = subprocess.run(of_node_0, capture_output=True, text=True, check=True).stdout
    subprocess.run(["kill", "-9", *before.split()], check=True)

    def another() -> bool:
        now = subprocess.run(of_node_0, capture_output=True, text=True, check=False).stdout
        return bool(now) and now != before

    eventually(another)


def test_mistakes_are_explained(own: Kube) -> None:
    with pytest.raises(ClusterError, match="no node 'node-9'"):
        faults.stop_node(record(own), "node-9")
    with pytest.raises(ClusterError, match="there is no cluster 'nowhere'"):
        state.get("nowhere")
    with pytest.raises(ClusterError, match="cannot be the name"):
        state.check_name("Not_A_Name")
    with pytest.raises(ClusterError, match="no file"):
        images.load(record(own), "missing/image.tar")
    assert json.loads((record(own).folder / "cluster.json").read_text())["name"] == "faults"
