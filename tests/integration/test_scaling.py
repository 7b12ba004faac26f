"""Elastic roles grow and shrink while they run, and people join by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from local_runs import (
    eventually,
    experiment,
    is_gone,
    lines,
    program,
    replica,
    running,
    until,
    until_all_spoke,
    until_running,
)

from callsheet.errors import UserError


def _elastic(**fields: Any) -> dict[str, Any]:
    return {
        "name": "actor",
        "replicas": 2,
        "scale": {"min": 1, "max": 6},
        "command": program("patient.py"),
        **fields,
    }


def test_scaling_down_drains_the_highest_indexes_and_leaves_the_others_alone(folder: Path) -> None:
    with running(experiment(_elastic(replicas=5)), folder) as run:
        before = {r.name: r.containers[0].pid for r in until_all_spoke(run).replicas}
        run.scale({"actor": 2})
        status = until(run, lambda s: len(s.replicas) == 2)
        assert {r.name: r.containers[0].pid for r in status.replicas} == {
            n: before[n] for n in ("actor/0", "actor/1")
        }
        assert status.roles[0].wanted == 2
        assert lines(run, "actor/4")[-1] == "stopping"


def test_scaling_up_tells_newcomers_the_new_size(folder: Path) -> None:
    with running(experiment(_elastic()), folder) as run:
        until_running(run)
        run.scale({"actor": 6})
        until(run, lambda s: s.roles[0].ready == 6)
        pid = replica(run.status(), "actor/5").containers[0].pid
        assert "CALLSHEET_REPLICAS=6" in Path(f"/proc/{pid}/environ").read_text().split("\0")


def test_a_replica_on_its_way_out_can_be_wanted_again(folder: Path) -> None:
    slow = _elastic(command=program("patient.py", "--stubborn"), terminationGracePeriod="1s")
    with running(experiment(slow), folder) as run:
        until_all_spoke(run)
        run.scale({"actor": 1})
        run.scale({"actor": 2})
        until(run, lambda s: s.roles[0].ready == 2 and replica(s, "actor/1").attempt == 1)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"actor": 7}, "actor=7 is out of range"),
        ({"actor": 0}, "actor=0 is out of range"),
        ({"learner": 2}, "the role 'learner' has a fixed size of 1"),
        ({"acto": 2}, "the experiment has no role 'acto'"),
    ],
)
def test_what_cannot_be_scaled_is_said(folder: Path, wanted: dict[str, int], message: str) -> None:
    with running(
        experiment(_elastic(), {"name": "learner", "command": program("patient.py")}), folder
    ) as run:
        until_running(run)
        with pytest.raises(UserError, match=message):
            run.scale(wanted)
        assert run.status().generation == 0


def test_one_more_member_joins_by_hand_and_leaves(folder: Path) -> None:
    server = {"name": "server", "binds": [{"name": "echo"}], "command": program("server.py", "ECHO")}
    dump = "import os,json,sys; print(json.dumps({k: v for k, v in os.environ.items() if 'CALLSHEET' in k})); sys.stdout.flush(); sys.stdin.read()"
    with running(experiment(server, _elastic(connects=["echo"])), folder) as run:
        until_running(run)
        command = [
            sys.executable,
            "-m",
            "callsheet",
            "join",
            run.id,
            "actor",
            "--",
            sys.executable,
            "-c",
            dump,
        ]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as member:
            assert member.stdout
            assert member.stdin
            env = json.loads(member.stdout.readline())
            assert env["CALLSHEET_INDEX"] == "6", "beyond every index that scaling may use"
            assert env["CALLSHEET_ECHO_ADDR"].startswith("127.")
            status = run.status()
            assert replica(status, "actor/6").joined
            assert status.roles[1].wanted == 3
            book = json.loads(Path(run.layout.addresses).read_text())
            assert book["roles"]["actor"]["indexes"] == [0, 1, 6]
            run.scale({"actor": 1})
            book = eventually(
                lambda: (b := json.loads(Path(run.layout.addresses).read_text()))["generation"] == 2 and b
            )
            assert book["roles"]["actor"]["indexes"] == [0, 6]
            member.stdin.close()
            assert member.wait(10) == 0
        status = until(run, lambda s: s.roles[1].wanted == 1)
        assert json.loads(Path(run.layout.addresses).read_text())["roles"]["actor"]["indexes"] == [0]


def test_a_member_that_joined_ends_with_the_run_and_with_its_terminal(folder: Path) -> None:
    with running(experiment(_elastic()), folder) as run:
        until_running(run)
        command = [sys.executable, "-m", "callsheet", "join", run.id, "actor", "--", *program("patient.py")]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        with first, second:
            assert first.stdout
            assert second.stdout
            pids = [int(member.stdout.readline().split()[-1]) for member in (first, second)]
            os.kill(first.pid, signal.SIGKILL)
            eventually(lambda: is_gone(pids[0]))
            until(run, lambda s: s.roles[0].wanted == 3)
            run.stop()
            run.wait(10)
            second.wait(10)
            eventually(lambda: is_gone(pids[1]))


def test_people_who_scale_and_join_at_the_same_moment_do_not_get_in_each_others_way(folder: Path) -> None:
    roles = [_elastic(name=f"role-{n}", replicas=1) for n in range(4)]
    with running(experiment(*roles), folder) as run:
        until_running(run)
        hands = [threading.Thread(target=run.scale, args=({f"role-{n}": 3 + n % 2},)) for n in range(4)]
        for hand in hands:
            hand.start()
        for hand in hands:
            hand.join(20)
        status = until(run, lambda s: sum(role.ready for role in s.roles) == 14)
        assert [role.wanted for role in status.roles] == [3, 4, 3, 4]
