"""What a run survives with nothing installed in the cluster: failures, deletions, evictions, a client that dies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from cluster_runs import (
    FOREVER,
    begin,
    callsheet,
    cloud,
    experiment,
    folder,
    python,
    replica,
    until,
    until_running,
)
from kubectl import Kube, eventually

from callsheet.backends.base import Status, Target
from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.spec.dump import to_yaml

__all__ = ["begin", "cloud", "folder"]

Begin = Callable[..., KubernetesRun]


def test_a_replica_that_fails_comes_back_and_knows_its_attempt(begin: Begin) -> None:
    flaky = "import os, sys, time\nprint(os.environ['CALLSHEET_ATTEMPT'])\nif os.environ['CALLSHEET_ATTEMPT'] == '0': sys.exit(1)\ntime.sleep(600)"
    run = begin({"name": "worker", "command": python(flaky)})
    status = until(run, lambda s: s.replicas[0].ready and s.replicas[0].attempt == 1, 240)
    assert replica(status, "worker/0").restarts == 1
    eventually(lambda: [line.text for line in run.logs()] == ["0", "1"])


def test_a_deleted_pod_comes_back_and_a_deleted_service_with_the_next_run(
    namespace: Kube, begin: Begin
) -> None:
    role = {"name": "worker", "command": python(FOREVER), "binds": [{"name": "data", "port": 7000}]}
    role["readinessProbe"] = {"exec": {"command": ["true"]}}
    run = begin(role)
    until_running(run)
    (before,) = namespace.nodes_of("callsheet.dev/experiment=exp")
    namespace("delete", "pod", before)

    def another(status: Status) -> bool:
        return status.replicas[0].ready and before not in namespace.nodes_of("callsheet.dev/experiment=exp")

    until(run, another, 240)
    namespace("delete", "service", "exp-data")
    assert begin(role).id == run.id
    assert namespace.get("service", "exp-data")["spec"]["ports"][0]["port"] == 7000


def test_an_actor_evicted_more_often_than_its_limit_is_still_running(namespace: Kube, begin: Begin) -> None:
    run = begin({"name": "actor", "command": python(FOREVER), "restart": {"limit": 1}})
    for _ in range(3):
        status = until(run, lambda s: s.replicas[0].ready, 240)
        assert replica(status, "actor/0").restarts == 0
        before = set(namespace.nodes_of("callsheet.dev/experiment=exp"))
        run.restart([Target("actor", 0)])

        def replaced(status: Status, before: set[str] = before) -> bool:
            return not set(namespace.nodes_of("callsheet.dev/experiment=exp")) <= before

        until(run, replaced, 240)
    status = until(run, lambda s: s.replicas[0].ready, 240)
    assert status.phase == "Running"
    assert replica(status, "actor/0").restarts == 0


def test_a_client_that_was_killed_changes_nothing(namespace: Kube, folder: Path, image: str) -> None:
    file = folder / "code" / "exp.yaml"
    file.write_text(
        to_yaml(experiment({"name": "w", "command": python(FOREVER)}, name="killed", image=image))
    )
    env = os.environ | {"CALLSHEET_ON": "kubernetes"}
    client = subprocess.Popen(
        [sys.executable, "-m", "callsheet", "run", "-n", namespace.namespace, "-f", str(file)],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "w/0 | up\n"
    client.kill()
    client.wait()
    client.stdout.close()
    done = callsheet(namespace, "status", "killed")
    assert "Running, 1 of 1 ready" in done.stdout
    for words in (["stop", "--now"], ["delete", "-y"]):
        done = callsheet(namespace, *words, "killed")
        assert done.returncode == 0, done.stderr
    assert namespace.get("pods", "-l", "callsheet.dev/experiment=killed")["items"] == []
