"""The cluster is the real thing: what people expect of Kubernetes happens on it."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request

import pytest
from kubectl import SAFE, Kube, eventually, pod, web

SLEEP = ["python3", "-c", "import time; print('here', flush=True); time.sleep(3600)"]
ASK = """
import collections, sys, urllib.request
print(collections.Counter(urllib.request.urlopen(sys.argv[1]).read().decode() for _ in range(60)))
"""


def test_two_nodes_are_ready(cluster: Kube) -> None:
    nodes = cluster.get("nodes", "-l", "type!=kwok")["items"]
    assert len(nodes) >= 2
    for node in nodes:
        assert cluster.node_ready(node["metadata"]["name"]) == "True"
        assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.")


def test_a_stateful_set_spreads_over_both_nodes_and_a_service_balances_over_all(
    namespace: Kube, image: str
) -> None:
    namespace.apply(*web("web", image, 4), pod("client", image, SLEEP))
    namespace.ready("statefulset", "web")
    namespace.ready("pod", "client")
    placed = namespace.nodes_of("app=web")
    assert sorted(placed) == ["web-0", "web-1", "web-2", "web-3"]
    assert len(set(placed.values())) == 2

    def ask(address: str) -> str:
        """The answers; none while a node does not know of a new endpoint, or the name server of a name."""
        return namespace.said("exec", "client", "--", "python3", "-c", ASK, f"http://{address}")

    eventually(lambda: all(name in ask("web-balanced") for name in placed))
    for name in placed:
        eventually(lambda name=name: f"'{name}': 60" in ask(f"{name}.web:8080"))


def test_pods_keep_their_addresses_on_the_way_to_another_node(namespace: Kube, image: str) -> None:
    tell = "import socket; s=socket.create_server(('', 9000)); [print(s.accept()[1][0], flush=True) for _ in range(9)]"
    namespace.apply(pod("listener", image, ["python3", "-c", tell]))
    namespace.ready("pod", "listener")
    listener = namespace.get("pod", "listener")
    client = pod("client", image, SLEEP)
    client["spec"]["affinity"] = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "listener"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    namespace.apply(client)
    namespace.ready("pod", "client")
    connect = f"import socket; socket.create_connection(('{listener['status']['podIP']}', 9000), 5)"
    words = namespace.words("exec", "client", "--", "python3", "-c", connect)
    eventually(lambda: subprocess.run(words, capture_output=True, check=False).returncode == 0)
    address = namespace.get("pod", "client")["status"]["podIP"]
    eventually(lambda: address in namespace("logs", "listener"))


def test_a_node_port_is_reached_from_the_host(namespace: Kube, image: str) -> None:
    if namespace.own is None:
        pytest.skip("another cluster's nodes need not be reachable")
    namespace.apply(*web("web", image, 1))
    namespace.ready("statefulset", "web")
    port = namespace.get("service", "web-balanced")["spec"]["ports"][0]["nodePort"]

    def answers(node: str) -> bool:
        assert namespace.own is not None
        try:
            address = f"http://{namespace.own.node_address(node)}:{port}"
            return bool(urllib.request.urlopen(address, timeout=60).read() == b"web-0")
        except OSError:
            return False

    for node in namespace.own.nodes:
        eventually(lambda node=node: answers(node))


def test_logs_and_exec_and_port_forward_go_through_the_api_server(namespace: Kube, image: str) -> None:
    namespace.apply(*web("web", image, 1))
    namespace.ready("statefulset", "web")
    assert namespace("exec", "web-0", "--", "python3", "-c", "print(6 * 7)").strip() == "42"
    forward = namespace.words("port-forward", "pod/web-0", ":8080")
    with subprocess.Popen(forward, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found
            port = found[1]
            assert urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=60).read() == b"web-0"
        finally:
            process.terminate()
    eventually(lambda: "asked" in namespace("logs", "web-0"))


def test_a_container_over_its_memory_limit_is_oom_killed(namespace: Kube, image: str) -> None:
    eat = pod(
        "eater",
        image,
        ["python3", "-c", "x = bytearray(256 << 20)"],
        resources={"limits": {"memory": "64Mi"}},
    )
    eat["spec"]["restartPolicy"] = "Never"
    namespace.apply(eat)

    def reason() -> str:
        states = namespace.get("pod", "eater")["status"].get("containerStatuses", [{}])
        return str(states[0].get("state", {}).get("terminated", {}).get("reason", ""))

    eventually(lambda: reason() != "")
    assert reason() == "OOMKilled"


@pytest.mark.parametrize(
    "missing", ["registry.callsheet.dev/nobody:1", "docker.io/library/nobody-has-this:1"]
)
def test_an_image_that_cannot_be_pulled_is_reported_soon(namespace: Kube, missing: str) -> None:
    namespace.apply(pod("lost", missing, ["/nothing"]))

    def reason() -> str:
        states = namespace.get("pod", "lost")["status"].get("containerStatuses", [{}])
        return str(states[0].get("state", {}).get("waiting", {}).get("reason", ""))

    eventually(lambda: reason() in ("ErrImagePull", "ImagePullBackOff"))


def test_the_restricted_standard_lets_safe_pods_in_and_keeps_others_out(namespace: Kube, image: str) -> None:
    namespace("label", "namespace", namespace.namespace, "pod-security.kubernetes.io/enforce=restricted")
    namespace.apply(pod("safe", image, SLEEP))
    namespace.ready("pod", "safe")
    tries = "open('/here', 'w')"
    assert "Read-only file system" in namespace.refused("exec", "safe", "--", "python3", "-c", tries)
    unsafe = pod("unsafe", image, SLEEP, {**SAFE, "runAsNonRoot": False})
    assert "violates PodSecurity" in namespace.refused("apply", "-f", "-", stdin=json.dumps(unsafe))


def test_a_volume_claim_is_bound_and_seen_from_both_nodes(namespace: Kube, image: str) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "results"},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    writer, reader = (
        pod(name, image, SLEEP, volumeMounts=[{"name": "v", "mountPath": "/results"}])
        for name in ("writer", "reader")
    )
    for each in (writer, reader):
        each["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "results"}}]
        each["metadata"]["labels"] = {"app": "pair"}
        each["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "pair"}},
            }
        ]
    namespace.apply(claim, writer, reader)
    namespace.ready("pod", "writer")
    namespace.ready("pod", "reader")
    assert len(set(namespace.nodes_of("app=pair").values())) == 2
    namespace("exec", "writer", "--", "python3", "-c", "open('/results/x', 'w').write('from the other node')")
    assert "from the other node" in namespace(
        "exec", "reader", "--", "python3", "-c", "print(open('/results/x').read())"
    )
