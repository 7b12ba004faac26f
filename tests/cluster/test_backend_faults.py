"""What a run survives when the cluster itself is hurt: the API server goes, a node is drained or cut off."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_runs import FOREVER, begin, cloud, experiment, folder, python, until, until_running
from kubectl import Kube, eventually

from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.spec.dump import to_yaml
from tools.cluster import faults, images
from tools.cluster.state import Cluster

__all__ = ["begin", "cloud", "folder"]

Begin = Callable[..., KubernetesRun]
COUNTS = "import time\nfor i in range(60):\n    print('step', i)\n    time.sleep(0.5)"
OUTAGE = 20.0


@pytest.fixture
def cluster(fragile: Kube) -> Kube:
    """These tests' namespaces are in the cluster that may be hurt."""
    return fragile


@pytest.fixture
def own(fragile: Kube) -> Cluster:
    assert fragile.own is not None
    return fragile.own


@pytest.fixture(scope="module")
def image(_fragile: Kube) -> str:
    assert _fragile.own is not None
    return images.push_project_image(_fragile.own)


def test_a_drained_node_is_left_and_the_run_goes_on(namespace: Kube, begin: Begin) -> None:
    run = begin(
        {"name": "actor", "replicas": 4, "command": python(FOREVER)},
        {"name": "server", "command": python(FOREVER), "restart": {"policy": "Always"}},
    )
    until_running(run)
    try:
        # `--force`: pods that nobody brings back, of other tests, are in nobody's way either.
        namespace(
            "drain", "node-1", "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=120s"
        )
        until(run, lambda s: all(r.ready for r in s.replicas), 240)
        found = namespace.get("pods")["items"]
        nodes = [p["spec"]["nodeName"] for p in found if p["status"]["phase"] == "Running"]
        assert len(nodes) == 5
        assert "node-1" not in nodes
        assert run.status().restarts == 0
    finally:
        namespace("uncordon", "node-1")


def test_a_node_that_is_cut_off_is_told_and_its_replicas_are_back_when_it_is(
    own: Cluster, begin: Begin
) -> None:
    run = begin(
        {"name": "actor", "command": python(FOREVER), "nodeSelector": {"kubernetes.io/hostname": "node-1"}},
    )
    until_running(run)
    faults.partition_node(own, "node-1")
    status = until(run, lambda s: not s.replicas[0].ready, 240)
    assert "its node node-1 does not answer" in status.replicas[0].reason
    faults.heal(own)
    until_running(run)
    assert run.status().restarts == 0


# The last one: after it kubelets hear of new pods late, as they ask again less and less often.
def test_a_run_and_its_readers_live_through_an_api_server_that_is_away(
    namespace: Kube, own: Cluster, folder: Path, image: str
) -> None:
    file = folder / "code" / "exp.yaml"
    made = experiment({"name": "worker", "command": python(COUNTS)}, name="outage", image=image)
    file.write_text(to_yaml(made))
    env = os.environ | {"CALLSHEET_ON": "kubernetes"}

    def client(name: str, *words: str) -> tuple[subprocess.Popen[bytes], Path, Path]:
        out, complaints = folder / f"{name}.out", folder / f"{name}.err"
        with out.open("wb") as stdout, complaints.open("wb") as stderr:
            command = [sys.executable, "-m", "callsheet", words[0], "-n", namespace.namespace, *words[1:]]
            return subprocess.Popen(command, stdout=stdout, stderr=stderr, env=env), out, complaints

    attached, shown, said = client("run", "run", "-f", str(file))
    eventually(lambda: "step 0" in shown.read_text())
    reader, read, complaints = client("logs", "logs", "-f", "outage")
    eventually(lambda: "step 0" in read.read_text() or reader.poll() is not None)
    assert reader.poll() is None, complaints.read_text()
    faults.stop_api(own)
    time.sleep(OUTAGE)  # how long the outage lasts is what is tested
    faults.heal(own)
    assert attached.wait(240) == 0, said.read_text()
    assert reader.wait(180) == 0, complaints.read_text()
    steps = [f"worker/0 | step {i}" for i in range(60)]
    assert shown.read_text().splitlines() == steps
    assert read.read_text().splitlines() == steps
    assert "trying again" in said.read_text()
    assert "outage Succeeded" in said.read_text()
