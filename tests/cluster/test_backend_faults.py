"""What a run survives with nothing installed in the cluster. On a cluster of its own, which is hurt on purpose."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backendrun import FOREVER, callsheet, experiment, python, replica, until, until_running
from kube import Kube, eventually

from callsheet.backends.base import Place, Status
from callsheet.backends.kubernetes.backend import KubernetesBackend
from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.spec.dump import to_yaml
from tools.cluster import faults, images

pytestmark = pytest.mark.exclusive

Begin = Callable[..., KubernetesRun]
COUNTS = "import time\nfor i in range(60):\n    print('step', i)\n    time.sleep(0.5)"
OUTAGE = 20.0


@pytest.fixture(scope="module")
def own(start: Callable[[str, int], Kube]) -> Kube:
    return start("backend", 2)


@pytest.fixture(scope="module")
def image(own: Kube) -> str:
    assert own.own is not None
    return images.push_project_image(own.own)


@pytest.fixture
def begin(own: Kube, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Starts an experiment; it is gone when the test is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(own.kubeconfig))
    (tmp_path / "code").mkdir()
    backend = KubernetesBackend(Place())
    started: list[KubernetesRun] = []

    def start(*roles: dict[str, Any], name: str, detach: bool = True, **spec: Any) -> KubernetesRun:
        made = experiment(*roles, name=name, image=image, **spec)
        started.append(backend.start(made, base=tmp_path / "code", detach=detach))
        return started[-1]

    yield start
    for run in started:
        backend.api.delete("ConfigMap", run.experiment)


def test_a_run_and_its_readers_live_through_an_api_server_that_is_away(
    own: Kube, begin: Begin, image: str, tmp_path: Path
) -> None:
    assert own.own is not None
    file = tmp_path / "code" / "exp.yaml"
    made = experiment({"name": "worker", "command": python(COUNTS)}, name="outage", image=image)
    file.write_text(to_yaml(made))
    env = os.environ | {"CALLSHEET_ON": "kubernetes"}

    def client(name: str, *words: str) -> tuple[subprocess.Popen[bytes], Path, Path]:
        out, complaints = tmp_path / f"{name}.out", tmp_path / f"{name}.err"
        with out.open("wb") as stdout, complaints.open("wb") as stderr:
            command = [sys.executable, "-m", "callsheet", *words]
            return subprocess.Popen(command, stdout=stdout, stderr=stderr, env=env), out, complaints

    attached, shown, said = client("run", "run", "-f", str(file))
    eventually(lambda: "step 0" in shown.read_text())
    reader, read, complaints = client("logs", "logs", "-f", "outage")
    eventually(lambda: "step 0" in read.read_text() or reader.poll() is not None)
    assert reader.poll() is None, complaints.read_text()
    faults.stop_api(own.own)
    time.sleep(OUTAGE)  # how long the outage lasts is what is tested
    faults.heal(own.own)
    assert attached.wait(120) == 0, said.read_text()
    assert reader.wait(60) == 0, complaints.read_text()
    steps = [f"worker/0 | step {i}" for i in range(60)]
    assert shown.read_text().splitlines() == steps
    assert read.read_text().splitlines() == steps
    assert "trying again" in said.read_text()
    assert "outage Succeeded" in said.read_text()


def test_a_replica_that_fails_comes_back_and_knows_its_attempt(begin: Begin) -> None:
    flaky = "import os, sys, time\nprint(os.environ['CALLSHEET_ATTEMPT'])\nif os.environ['CALLSHEET_ATTEMPT'] == '0': sys.exit(1)\ntime.sleep(600)"
    run = begin({"name": "worker", "command": python(flaky)}, name="flaky")
    status = until(run, lambda s: s.replicas[0].ready and s.replicas[0].attempt == 1, 90)
    assert replica(status, "worker/0").restarts == 1
    assert [line.text for line in run.logs()] == ["0", "1"]


def test_a_deleted_pod_comes_back_and_a_deleted_service_with_the_next_run(own: Kube, begin: Begin) -> None:
    role = {"name": "worker", "command": python(FOREVER), "binds": [{"name": "data", "port": 7000}]}
    role["readinessProbe"] = {"exec": {"command": ["true"]}}
    run = begin(role, name="deleted")
    until_running(run)
    (before,) = own.nodes_of("callsheet.dev/experiment=deleted")
    own("delete", "pod", before)

    def another(status: Status) -> bool:
        return status.replicas[0].ready and before not in own.nodes_of("callsheet.dev/experiment=deleted")

    until(run, another, 90)
    own("delete", "service", "deleted-data")
    assert begin(role, name="deleted").id == run.id
    assert own.get("service", "deleted-data")["spec"]["ports"][0]["port"] == 7000


def test_an_actor_evicted_more_often_than_its_limit_is_still_running(own: Kube, begin: Begin) -> None:
    from callsheet.backends.base import Target

    run = begin({"name": "actor", "command": python(FOREVER), "restart": {"limit": 1}}, name="evicted")
    for _ in range(3):
        status = until(run, lambda s: s.replicas[0].ready, 120)
        assert replica(status, "actor/0").restarts == 0
        before = set(own.nodes_of("callsheet.dev/experiment=evicted"))
        run.restart([Target("actor", 0)])

        def replaced(status: Status, before: set[str] = before) -> bool:
            return not set(own.nodes_of("callsheet.dev/experiment=evicted")) <= before

        until(run, replaced, 120)
    assert until(run, lambda s: s.replicas[0].ready, 120).phase == "Running"


def test_a_drained_node_is_left_and_the_run_goes_on(own: Kube, begin: Begin) -> None:
    run = begin(
        {"name": "actor", "replicas": 4, "command": python(FOREVER)},
        {"name": "server", "command": python(FOREVER), "restart": {"policy": "Always"}},
        name="drained",
    )
    until_running(run)
    drain = threading.Thread(
        target=own, args=("drain", "node-1", "--ignore-daemonsets", "--force", "--delete-emptydir-data")
    )
    drain.start()
    try:
        drain.join(120)
        assert not drain.is_alive()
        until(run, lambda s: all(r.ready for r in s.replicas), 120)
        found = own.get("pods", "-l", "callsheet.dev/experiment=drained")["items"]
        assert {p["spec"]["nodeName"] for p in found if p["status"]["phase"] == "Running"} == {"node-0"}
        assert run.status().restarts == 0
    finally:
        own("uncordon", "node-1")


def test_a_node_that_is_cut_off_is_told_and_its_replicas_are_back_when_it_is(own: Kube, begin: Begin) -> None:
    assert own.own is not None
    run = begin(
        {"name": "actor", "command": python(FOREVER), "nodeSelector": {"kubernetes.io/hostname": "node-1"}},
        name="cut",
    )
    until_running(run)
    faults.partition_node(own.own, "node-1")
    status = until(run, lambda s: not s.replicas[0].ready, 120)
    assert "its node node-1 does not answer" in status.replicas[0].reason
    faults.heal(own.own)
    until_running(run)
    assert run.status().restarts == 0


def test_a_client_that_was_killed_changes_nothing(
    own: Kube, begin: Begin, image: str, tmp_path: Path
) -> None:
    file = tmp_path / "code" / "exp.yaml"
    file.write_text(
        to_yaml(experiment({"name": "w", "command": python(FOREVER)}, name="killed", image=image))
    )
    env = os.environ | {"CALLSHEET_ON": "kubernetes"}
    client = subprocess.Popen(
        [sys.executable, "-m", "callsheet", "run", "-f", str(file)],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "w/0 | up\n"
    client.kill()
    client.wait()
    client.stdout.close()
    done = callsheet(own, "status", "killed")
    assert "Running, 1 of 1 ready" in done.stdout
    callsheet(own, "stop", "--now", "killed")
    callsheet(own, "delete", "-y", "killed")
    eventually(lambda: not own.get("pods", "-l", "callsheet.dev/experiment=killed")["items"])
