"""Nodes stop, are cut off and come back; GPUs appear; many nodes are pretended. On a cluster that may be hurt."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest
from kubectl import Kube, eventually, pod

from tools.cluster import build, faults, kwok, network, units
from tools.cluster.cli import main
from tools.cluster.shell import run
from tools.cluster.state import CONTROL


@pytest.fixture
def own(fragile: Kube) -> Kube:
    return fragile


@pytest.fixture
def tool(own: Kube, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`python -m tools.cluster VERB ...` on that cluster; what it printed."""

    def run(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        assert own.own is not None
        assert main([*words, "--name", own.own.name]) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err

    return run


def pause(name: str, node: str = "", **container: object) -> dict[str, object]:
    found = pod(name, build.PAUSE_IMAGE, ["/pause"], imagePullPolicy="Never", **container)
    if node:
        found["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return found


def ready_since(own: Kube, node: str) -> str:
    """When a node that is ready became so: the same answer twice says that it was ready all the time between."""
    (ready,) = (c for c in own.get("node", node)["status"]["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "True"
    return str(ready["lastTransitionTime"])


def test_a_stopped_node_is_noticed_and_comes_back_with_its_pods(own: Kube, tool: Callable[..., str]) -> None:
    own.apply(pause("sleeper", "node-1"))
    own.ready("pod", "sleeper")
    before = ready_since(own, "node-0")
    tool("stop-node", "node-1")
    eventually(lambda: own.node_ready("node-1") == "Unknown")
    assert ready_since(own, "node-0") == before
    tool("heal")
    eventually(lambda: own.get("pod", "sleeper")["status"]["containerStatuses"][0]["restartCount"] >= 1)
    own.ready("pod", "sleeper")


def test_a_partitioned_node_is_noticed_while_its_pods_run_on(own: Kube, tool: Callable[..., str]) -> None:
    own.apply(pause("hermit", "node-1"))
    own.ready("pod", "hermit")
    before = ready_since(own, "node-0")
    tool("partition-node", "node-1")
    assert "partitioned" in tool("status")
    eventually(lambda: own.node_ready("node-1") == "Unknown")
    assert ready_since(own, "node-0") == before
    tool("heal")
    own.ready("pod", "hermit")
    assert own.get("pod", "hermit")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_whatever_is_plugged_in_or_out_the_switch_keeps_its_address(
    own: Kube, tool: Callable[..., str]
) -> None:
    """A switch whose address changes is unreachable for all nodes until they have learned the new one."""
    assert own.own is not None
    control = network.inside(units.running(own.own, CONTROL))

    def address() -> str:
        links = run([*control, "ip", "-json", "link", "show", network.BRIDGE])
        return str(json.loads(links)[0]["address"])

    before = address()
    # A bridge that is free to choose takes the lowest address of all its ports.
    run([*control, "ip", "link", "set", "node-1", "address", "02:00:00:00:00:01"])
    assert address() == before
    tool("partition-node", "node-1")
    assert address() == before
    tool("heal")
    assert address() == before


def test_the_api_server_goes_away_and_comes_back_while_pods_run_on(
    own: Kube, tool: Callable[..., str]
) -> None:
    own.apply(pause("steady"))
    own.ready("pod", "steady")
    tool("stop-api")
    assert "refused" in own.refused("get", "nodes")
    tool("heal")
    assert own.get("pod", "steady")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_controllers_begin_anew_after_an_outage_and_know_the_cluster_as_it_is(
    own: Kube, tool: Callable[..., str]
) -> None:
    """One that stayed would know jobs but not yet their pods, as each watch returns by itself, and wait minutes for them."""
    controllers = ["pgrep", "-f", f"kube-controller-manager --kubeconfig={own.kubeconfig.parent}/"]

    def processes() -> str:
        return subprocess.run(controllers, capture_output=True, text=True, check=False).stdout

    before = processes()
    tool("stop-api")
    eventually(lambda: not processes())
    tool("heal")
    own("create", "namespace", "after")
    own.within("after")("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
    assert processes() not in ("", before)
    own("delete", "namespace", "after")


def test_a_pod_that_wants_a_gpu_waits_for_a_node_that_has_one(own: Kube, tool: Callable[..., str]) -> None:
    own.apply(pause("greedy", resources={"limits": {faults.GPU: 2}}))
    eventually(lambda: "Insufficient nvidia.com/gpu" in own("get", "events", "-o", "json"))
    tool("gpu", "node-1", "2")
    own.ready("pod", "greedy")
    assert own.get("pod", "greedy")["spec"]["nodeName"] == "node-1"
    own("delete", "pod", "greedy")
    tool("gpu", "node-1", "0")
    eventually(lambda: faults.GPU not in own.get("node", "node-1")["status"]["allocatable"])


def test_a_node_keeps_its_gpus_over_a_restart(own: Kube, tool: Callable[..., str]) -> None:
    tool("gpu", "node-1", "4")
    tool("stop-node", "node-1")
    tool("heal")
    assert own.get("node", "node-1")["status"]["allocatable"][faults.GPU] == "4"


def test_a_node_can_be_added(own: Kube, tool: Callable[..., str]) -> None:
    assert tool("add-node").strip() == "node-2"
    own.apply(pause("newcomer", "node-2"))
    own.ready("pod", "newcomer")


def test_simulated_nodes_take_pods_that_ask_for_them(own: Kube, tool: Callable[..., str]) -> None:
    tool("kwok", "20")
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
    tool("kwok", "0")
    assert not any(kwok.name(0) in name for name in own("get", "nodes").split())


def test_an_image_archive_is_loaded_onto_every_node(own: Kube, tool: Callable[..., str]) -> None:
    tool("load", str(build.image("pause")))
    for node in own.get("nodes", "-l", "type!=kwok")["items"]:
        names = [name for image in node["status"]["images"] for name in image["names"]]
        assert build.PAUSE_IMAGE in names


def test_a_kubelet_that_is_killed_is_started_again(own: Kube, tool: Callable[..., str]) -> None:
    of_node_0 = ["pgrep", "-f", f"kubelet --config={own.kubeconfig.parent}/node-0/"]
    before = subprocess.run(of_node_0, capture_output=True, text=True, check=True).stdout
    subprocess.run(["kill", "-9", *before.split()], check=True)

    def another() -> bool:
        now = subprocess.run(of_node_0, capture_output=True, text=True, check=False).stdout
        return bool(now) and now != before

    eventually(another)


def test_status_and_kubeconfig_say_where_things_are(own: Kube, tool: Callable[..., str]) -> None:
    assert tool("kubeconfig").strip() == str(own.kubeconfig)
    said = tool("status")
    assert "API server at 10.200." in said
    assert "node-0" in said
    assert "Ready" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stop-node", "node-9"], "no node 'node-9'"),
        (["load", "missing.tar"], "there is no file 'missing.tar'"),
        (["gpu", "node-0", "-1"], "cannot have -1 GPUs"),
        (["kwok", "1000000"], "1000000 simulated nodes cannot be had"),
        (["up", "--nodes", "0"], "a cluster of 0 nodes cannot be had"),
    ],
)
def test_mistakes_are_explained(tool: Callable[..., str], words: list[str], said: str) -> None:
    error = tool(*words, code=1)
    assert said in error
    assert "fix:" in error


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere", "there is no cluster"), ("Not_A_Name", "cannot be the name")]
)
def test_a_wrong_name_is_explained(capsys: pytest.CaptureFixture[str], name: str, said: str) -> None:
    assert main(["kubeconfig", "--name", name]) == 1
    assert said in capsys.readouterr().err
