"""Pods that have not the run's key learn nothing of it, do not disturb it, and reach what the NetworkPolicy says."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_runs import begin, cloud, folder, lines, python, until_running
from kubectl import Kube, eventually, pod

from callsheet.backends.base import Status
from callsheet.backends.kubernetes.run import KubernetesRun
from tools.cluster import network, units

__all__ = ["begin", "cloud", "folder"]
Begin = Callable[..., KubernetesRun]
STRANGER = Path(__file__).parents[1] / "programs" / "stranger.py"

LEARNER = """
import http.server, json, os, threading, time
from callsheet.runtime import Context, TrajectoryReader
def serve(endpoint):
    address = "", int(os.environ[f"CALLSHEET_{endpoint}_PORT"])
    server = http.server.ThreadingHTTPServer(address, http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
serve("BOARD"), serve("OPEN")
last, wrong, longest = {}, 0, 0.0
with Context.from_env() as ctx, TrajectoryReader(ctx, "trajectories") as reader:
    reader.read(4, timeout=180)
    while len(last) < 2 or not os.path.exists("/tmp/finish"):
        before = time.monotonic()
        batch = reader.read(4, timeout=60)
        longest = max(longest, time.monotonic() - before)
        for n in range(4):
            who, number = (int(batch.writers[n]), int(batch.incarnations[n])), int(batch.sequences[n])
            wrong += number != last.get(who, number - 1) + 1
            wrong += bytes(batch["x"][n]) != os.environb[b"SECRET"] * 1000
            last[who] = number
print(json.dumps({"wrong": wrong, "writers": len(last), "longest": longest}), flush=True)
"""
ACTOR = """
import os
import numpy as np
from callsheet.runtime import Context, TrajectoryWriter
with Context.from_env() as ctx, TrajectoryWriter(ctx, "trajectories") as writer:
    while True:
        writer.write({"x": np.frombuffer(os.environb[b"SECRET"] * 1000, "u1")})
        ctx.sleep(0.01)
"""
# Sees every packet of the network namespace that it was started in, until it is told to stop.
SNIFFER = """
import select, socket, sys
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
print("listening", flush=True)
seen = found = 0
while sys.stdin not in (ready := select.select([packets, sys.stdin], [], [])[0]):
    packet = packets.recv(1 << 17)
    seen += len(packet)
    found += sys.argv[1].encode() in packet
print(seen, found)
"""
LEARNER_ROLE = {
    "name": "learner",
    "command": python(LEARNER),
    "binds": [{"name": "trajectories"}, {"name": "metrics"}],
    "exposes": [{"name": "board", "port": 6006}, {"name": "open", "port": 6007, "type": "NodePort"}],
}
ACTOR_ROLE = {"name": "actor", "replicas": 2, "command": python(ACTOR), "connects": ["trajectories"]}


class Experiment:
    """An experiment that goes on until it is told to finish, and where it can be reached."""

    def __init__(self, kube: Kube, begin: Begin, secret: str, **spec: Any) -> None:
        self._kube = kube
        # What is sent is in no other test's packets.
        self.run = begin(
            LEARNER_ROLE,
            ACTOR_ROLE,
            env=[{"name": "SECRET", "value": secret}],
            lifecycle={"success": ["learner"]},
            detach=False,
            **spec,
        )
        until_running(self.run)
        self.pod = kube.get("pods", "-l", "callsheet.dev/role=learner")["items"][0]
        self.endpoints = json.loads(kube.get("configmap", "exp")["data"]["addresses.json"])["endpoints"]

    def address(self, endpoint: str) -> str:
        return f"{self.pod['status']['podIP']}:{self.endpoints[endpoint]['port']}"

    def finish(self) -> Status:
        """It ends with the right result, as if nothing had been tried."""
        self._kube("exec", self.pod["metadata"]["name"], "--", "touch", "/tmp/finish")
        status = self.run.wait(120)
        assert status.phase == "Succeeded", lines(self.run, "learner")
        said = json.loads(lines(self.run, "learner")[-1])
        assert (said["wrong"], said["writers"]) == (0, 2)
        assert said["longest"] < 20
        return status


@pytest.fixture
def secret() -> str:
    return f"secret-{uuid.uuid4().hex}"


@pytest.fixture
def strangers(namespace: Kube, cluster: Kube, image: str) -> Iterator[dict[str, Kube]]:
    """A pod beside the experiment's, and one in another namespace; neither has the key."""
    elsewhere = cluster.within(f"test-{uuid.uuid4().hex[:8]}")
    cluster("create", "namespace", elsewhere.namespace)
    elsewhere("wait", "--for=create", "serviceaccount/default", "--timeout=120s")
    found = {"beside": namespace, "elsewhere": elsewhere}
    for kube in found.values():
        kube.apply(pod("stranger", image, python("import time\ntime.sleep(3600)")))
    for kube in found.values():
        kube.ready("pod", "stranger")
    yield found
    cluster("delete", "namespace", elsewhere.namespace, "--wait=false")


def tries(kube: Kube, what: str, *arguments: str) -> Any:
    """What the stranger of a namespace gets."""
    words = ["exec", "-i", "stranger", "--", "python3", "-", what, *arguments]
    return json.loads(kube(*words, stdin=STRANGER.read_text()))


@contextmanager
def sniffing(kube: Kube, secret: str) -> Iterator[Callable[[], tuple[int, int]]]:
    """A capture of all packets on every node; ends with how many bytes were seen, and packets with the secret."""
    assert kube.own is not None
    with ExitStack() as stack:
        captures = []
        for node in kube.own.nodes:
            words = [*network.inside(units.running(kube.own, node)), sys.executable, "-c", SNIFFER, secret]
            one = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            captures.append(stack.enter_context(one))
            stack.callback(one.kill)
            assert one.stdout is not None
            assert one.stdout.readline() == "listening\n"

        def stop() -> tuple[int, int]:
            said = [tuple(map(int, one.communicate("enough\n", timeout=60)[0].split())) for one in captures]
            return sum(seen for seen, _ in said), sum(found for _, found in said)

        yield stop


def scraping(namespace: str, port: int) -> dict[str, Any]:
    """The policy that the documentation shows: another namespace may scrape."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "kubernetes.md").read_text()
    text = page.partition("```yaml\napiVersion: networking.k8s.io/v1\n")[2].partition("```")[0]
    shown: dict[str, Any] = yaml.safe_load(text.replace("monitoring", namespace).replace("cartpole", "exp"))
    shown["spec"]["ingress"][0]["ports"][0]["port"] = port
    return {"apiVersion": "networking.k8s.io/v1", **shown}


def need_own(kube: Kube) -> None:
    if kube.own is None:
        pytest.skip("whether another cluster enforces policies, and what its nodes send, is not known")


def test_the_policy_lets_in_who_belongs_to_the_experiment_and_whom_it_is_exposed_to(
    namespace: Kube, strangers: dict[str, Kube], begin: Begin, secret: str
) -> None:
    need_own(namespace)
    exp = Experiment(namespace, begin, secret)
    names = ("trajectories", "metrics", "board", "open")
    addresses = {exp.address(name): name for name in names}

    def reached(kube: Kube) -> list[str]:
        return [addresses[address] for address in tries(kube, "reach", *addresses)]

    # A policy holds when the nodes have heard of it, a moment after the pods were made.
    eventually(lambda: "trajectories" not in reached(strangers["beside"]), 30)
    assert reached(strangers["beside"]) == ["metrics", "board", "open"]
    assert reached(strangers["elsewhere"]) == ["open"]
    service = namespace.get("service", "exp-open")["spec"]["ports"][0]["nodePort"]
    assert namespace.own is not None
    through_nodes = [f"{namespace.own.node_address(node)}:{service}" for node in namespace.own.nodes]
    assert tries(strangers["elsewhere"], "reach", *through_nodes) == through_nodes
    command = [sys.executable, str(STRANGER), "reach", *through_nodes]
    from_outside = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(from_outside.stdout) == through_nodes
    namespace.apply(scraping(strangers["elsewhere"].namespace, exp.endpoints["metrics"]["port"]))
    eventually(lambda: reached(strangers["elsewhere"]) == ["metrics", "open"], 30)
    namespace("delete", "networkpolicy", "exp", "scrape")
    eventually(lambda: reached(strangers["elsewhere"]) == [*names], 30)
    exp.finish()


def test_pods_without_the_key_are_refused_and_packets_tell_nothing(
    namespace: Kube, strangers: dict[str, Kube], begin: Begin, secret: str
) -> None:
    need_own(namespace)
    with sniffing(namespace, secret) as stop:
        exp = Experiment(namespace, begin, secret)
        namespace("delete", "networkpolicy", "exp")  # the key alone protects where no policy is enforced
        address = exp.address("trajectories")
        for kube in strangers.values():
            eventually(lambda kube=kube: tries(kube, "reach", address) == [address], 30)  # type: ignore[misc]
            assert len(bytes.fromhex(tries(kube, "raw", address))) == 64  # ZeroMQ's greeting
            assert tries(kube, "links", exp.run.id, address) == []
            assert secret not in tries(kube, "scrape", exp.address("metrics"))
        exp.finish()
        seen, found = stop()
    assert seen > 100_000
    assert found == 0


def test_without_encryption_packets_tell_everything_and_anybody_is_admitted(
    namespace: Kube, strangers: dict[str, Kube], begin: Begin, secret: str
) -> None:
    need_own(namespace)
    with sniffing(namespace, secret) as stop:
        exp = Experiment(namespace, begin, secret, encryption=False)
        namespace("delete", "networkpolicy", "exp")
        address = exp.address("trajectories")
        eventually(lambda: tries(strangers["elsewhere"], "links", exp.run.id, address) == [address], 30)
        exp.finish()
        _, found = stop()
    assert found > 0
