"""The DIJob of the examples is converted and run: its programs exchange data by DI's own variables."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from local_runs import kill, lines, python, replica, running, until

from callsheet.compat.dijob import convert
from callsheet.spec.experiment import Experiment

EXAMPLE = Path(__file__).parents[2] / "examples" / "dijob"
COORDINATOR = """
import json, os, socket
host, port = os.environ["KUBERNETES_COORDINATOR_URL"].split(":")
assert port == os.environ["COORDINATOR_PORT"]
with socket.create_server((host, int(port))) as server:
    for _ in range(3):
        peer, _ = server.accept()
        with peer:
            print(peer.recv(99).decode())
"""
COLLECTOR = """
import os, socket, time
host, port = os.environ["KUBERNETES_COORDINATOR_URL"].split(":")
with socket.create_server((os.environ["CALLSHEET_COLLECTOR_HOST"], int(os.environ["COLLECTOR_PORT"]))):
    while True:
        try:
            with socket.create_connection((host, int(port))) as peer:
                peer.sendall(os.environ["KUBERNETES_POD_NAME"].encode())
        except ConnectionRefusedError:
            pass
        time.sleep(0.05)
"""


@pytest.fixture
def job(folder: Path) -> Experiment:
    """The example's job as an experiment, its programs beside it."""
    for program in EXAMPLE.glob("*.py"):
        shutil.copy(program, folder)
    [made] = convert((EXAMPLE / "job.yaml").read_bytes(), "job.yaml", workdir=".")
    return made.experiment


def test_a_converted_job_learns_and_succeeds(job: Experiment, folder: Path) -> None:
    with running(job, folder) as run:
        phases = [status.phase for status in run.watch(0.05)]
        status = run.wait(60)
        assert status.phase == "Succeeded", status
        assert phases[-1] == "Succeeded"
        assert {role.name: (role.wanted, role.succeeded) for role in status.roles} == {
            "learner": (1, 1),
            "collector": (2, 2),
            "evaluator": (1, 1),
        }
        said = {name: lines(run, name) for name in ("learner/0", "collector/0", "collector/1", "evaluator/0")}
    assert said["learner/0"][0] == "default/corridor: learner 0 of 4 listens"
    assert [said[f"collector/{i}"][0] for i in range(2)] == [
        f"collector {rank} of 4, one of 2 collectors" for rank in (1, 2)
    ]
    collected = {
        rank: int(re.findall(r"\d+", said[f"collector/{i}"][-1])[0]) for i, rank in enumerate((1, 2))
    }
    learned = {
        int(rank): int(count) for count, rank in re.findall(r"(\d+) from rank (\d)", said["learner/0"][-1])
    }
    assert learned == {rank: count for rank, count in collected.items() if count}
    assert float(re.findall(r"return ([\d.]+)", said["learner/0"][-1])[0]) >= 0.7


def test_a_converted_learner_that_is_killed_comes_back(job: Experiment, folder: Path) -> None:
    patient = job.model_dump(by_alias=True, exclude_unset=True)
    patient["spec"]["roles"][0]["args"] = ["--goal", "2"]
    with running(Experiment.model_validate(patient), folder) as run:
        status = until(
            run, lambda status: all(r.ready for r in status.replicas) and len(status.replicas) == 4
        )
        kill(status, "learner/0")
        status = until(run, lambda s: replica(s, "learner/0").attempt == 1 and replica(s, "learner/0").ready)
        assert all(role.failed == 0 for role in status.roles)
        run.stop()
        assert run.wait(30).phase == "Stopped"


def test_a_job_of_the_first_version_ends_with_its_coordinator(folder: Path) -> None:
    def template(name: str, code: str) -> dict[str, Any]:
        container = {"name": name, "image": "x", "command": python(code)}
        return {"template": {"spec": {"containers": [container]}}}

    spec = {
        "coordinator": template("coordinator", COORDINATOR),
        "collector": template("collector", COLLECTOR),
    }
    job = {"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob", "metadata": {"name": "first"}}
    [made] = convert(json.dumps(job | {"spec": spec}).encode(), "job.json", workdir=".")
    with running(made.experiment, folder) as run:
        status = run.wait(30)
        assert status.phase == "Succeeded", status
        assert {role.name: role.succeeded for role in status.roles}["coordinator"] == 1
        assert lines(run, "coordinator/0") == ["first-collector-0"] * 3
