"""A role with several containers: the first is the main one, the others stand beside it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from local_runs import experiment, program, python, replica, running, until, until_running


def _group(**main: Any) -> dict[str, Any]:
    return {
        "name": "simulation",
        "replicas": 2,
        "containers": [
            {"name": "policy", "command": program("patient.py"), **main},
            {"name": "sim", "command": program("patient.py")},
        ],
    }


def _pids(run: Any, name: str) -> dict[str, int]:
    return {c.name: c.pid for c in replica(run.status(), name).containers}


def test_when_the_main_container_is_killed_the_whole_replica_starts_again(folder: Path) -> None:
    with running(experiment(_group()), folder) as run:
        until_running(run)
        before, other = _pids(run, "simulation/0"), _pids(run, "simulation/1")
        os.kill(before["policy"], signal.SIGKILL)
        until(run, lambda s: replica(s, "simulation/0").attempt == 1 and s.roles[0].ready == 2)
        after = _pids(run, "simulation/0")
        assert after["policy"] != before["policy"]
        assert after["sim"] != before["sim"]
        assert _pids(run, "simulation/1") == other


def test_when_another_container_is_killed_it_comes_back_alone(folder: Path) -> None:
    with running(experiment(_group()), folder) as run:
        until_running(run)
        before = _pids(run, "simulation/0")
        os.kill(before["sim"], signal.SIGKILL)
        status = until(
            run, lambda s: replica(s, "simulation/0").containers[1].restarts == 1 and s.roles[0].ready == 2
        )
        after = _pids(run, "simulation/0")
        assert after["policy"] == before["policy"]
        assert after["sim"] != before["sim"]
        assert replica(status, "simulation/0").attempt == 0
        assert status.restarts == 0, "the replica did not fail: its budget is untouched"


def test_when_the_main_container_is_done_the_others_are_stopped(folder: Path) -> None:
    with running(experiment(_group(command=python("print('done')"))), folder) as run:
        status = run.wait(20)
        assert status.phase == "Succeeded"
        assert [r.phase for r in status.replicas] == ["Succeeded", "Succeeded"]


def test_the_others_start_first(folder: Path) -> None:
    with running(experiment(_group()), folder) as run:
        until_running(run)
        pids = _pids(run, "simulation/0")
        assert pids["sim"] < pids["policy"]


def test_containers_of_a_group_share_an_address_and_find_each_other(folder: Path) -> None:
    dump = "import os,json; print(json.dumps({k: v for k, v in os.environ.items() if 'CALLSHEET' in k}))"
    group = {
        "name": "simulation",
        "replicas": 3,
        "containers": [
            {"name": "policy", "command": python(dump), "connects": ["sim"]},
            {"name": "sim", "command": program("server.py", "SIM"), "binds": [{"name": "sim", "port": 9992}]},
        ],
    }
    watcher = {"name": "trainer", "command": python(dump), "connects": ["sim"]}
    with running(experiment(group, watcher), folder) as run:
        hosts = [r.host for r in run.wait(20).replicas if r.role == "simulation"]
        logs = Path(run.layout.logs)
        for index, host in enumerate(hosts):
            env = json.loads((logs / "simulation" / str(index) / "policy.log").read_text())
            assert env["CALLSHEET_SIM_ADDR"] == f"{host}:9992", "policy-i talks to its own simulator"
            assert env["CALLSHEET_CONTAINER"] == "policy"
        env = json.loads((logs / "trainer" / "0" / "trainer.log").read_text())
        assert env["CALLSHEET_SIM_ALL"] == ",".join(f"{host}:9992" for host in hosts)
