"""Ending a run leaves nothing behind, however it ends and whatever its processes do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from local_runs import (
    eventually,
    experiment,
    is_gone,
    kill,
    lines,
    processes_of,
    program,
    python,
    running,
    until,
    until_all_spoke,
    until_running,
)

from callsheet.backends.base import backend


def test_stop_asks_first_and_everything_ends(folder: Path) -> None:
    with running(
        experiment({"name": "actor", "replicas": 5, "command": program("patient.py")}), folder
    ) as run:
        until_all_spoke(run)
        run.stop(reason="enough")
        status = run.wait(10)
        assert (status.phase, status.reason, status.exit_code) == ("Stopped", "enough", 143)
        assert lines(run, "actor/4")[-1] == "stopping"
        assert not processes_of(run)


def test_a_replica_that_ignores_sigterm_is_killed_after_its_grace_period(folder: Path) -> None:
    stubborn = {
        "name": "actor",
        "command": program("patient.py", "--stubborn"),
        "terminationGracePeriod": "1s",
    }
    with running(experiment(stubborn), folder) as run:
        until_all_spoke(run)
        begun = time.monotonic()
        run.stop()
        run.wait(10)
        assert 0.9 < time.monotonic() - begun < 5
        assert not processes_of(run)


def test_stop_now_does_not_wait(folder: Path) -> None:
    with running(
        experiment({"name": "actor", "command": program("patient.py", "--stubborn")}), folder
    ) as run:
        until_all_spoke(run)
        begun = time.monotonic()
        run.stop()
        run.stop(kill=True)
        run.wait(10)
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize("how", ["--light", "--heavy"])
def test_a_child_that_forked_away_ends_with_its_replica(folder: Path, how: str) -> None:
    marker = folder / "daemon"
    exp = experiment({"name": "actor", "command": program("forks_away.py", str(marker), how)})
    with running(exp, folder) as run:
        assert run.wait(20).phase == "Succeeded"
        assert is_gone(int(marker.read_text()))


def test_a_child_that_forked_away_ends_before_the_next_attempt(folder: Path) -> None:
    exp = experiment({"name": "actor", "command": program("forks_away.py", "daemon-{index}", "--stay")})
    with running(exp, folder) as run:
        status = until(run, lambda s: (folder / "daemon-0").exists())
        daemon = int((folder / "daemon-0").read_text())
        kill(status, "actor/0")
        eventually(lambda: is_gone(daemon))
        assert run.status().phase == "Running"


@pytest.mark.exclusive
def test_killing_the_supervisor_leaves_no_process_of_the_run_within_two_seconds(folder: Path) -> None:
    away = {"name": "away", "replicas": 3, "command": program("forks_away.py", "daemon-{index}", "--stay")}
    stubborn = {"name": "stubborn", "replicas": 3, "command": program("patient.py", "--stubborn")}
    with running(experiment(away, stubborn), folder) as run:
        status = until(run, lambda s: all((folder / f"daemon-{i}").exists() for i in range(3)))
        until_all_spoke(run, "stubborn")
        eventually(lambda: len(processes_of(run)) == 9)
        os.kill(status.supervisor, signal.SIGKILL)
        eventually(lambda: not processes_of(run), within=2.0)
        lost = run.wait(10)
        assert (lost.phase, lost.exit_code) == ("Failed", 70)
        assert "supervisor was killed" in lost.reason
        assert lines(run, "stubborn/0")[0].startswith("attempt 0"), "the logs are still there"


@pytest.mark.exclusive
def test_a_killed_guard_is_replaced_and_the_run_stays_guarded(folder: Path) -> None:
    with running(experiment({"name": "actor", "command": program("patient.py")}), folder) as run:
        status = until_running(run)

        def guards() -> list[int]:
            answer = subprocess.run(
                ["pgrep", "-f", f"supervisor.guard {run.id}"], capture_output=True, text=True
            )
            return [int(pid) for pid in answer.stdout.split()]

        (first,) = eventually(guards)
        os.kill(first, signal.SIGKILL)
        eventually(lambda: guards() and guards() != [first])
        os.kill(status.supervisor, signal.SIGKILL)
        eventually(lambda: not processes_of(run), within=3.0)


def test_the_run_stops_when_the_program_that_started_it_goes_away(folder: Path) -> None:
    starter = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from local_runs import experiment, program
from callsheet.backends.base import backend
run = backend("local").start(experiment({{"name": "actor", "command": program("patient.py")}}), base=Path("."))
print(run.id, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", starter], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout
        run = backend("local").find(parent.stdout.readline().strip())
        parent.kill()
    status = run.wait(10)
    assert status.phase == "Stopped"
    assert status.reason == "the program that started it exited"


def test_a_detached_run_goes_on_alone(folder: Path) -> None:
    code = "import os; print(os.getppid())"
    with running(experiment({"name": "actor", "command": python(code)}), folder, detach=True) as run:
        assert run.wait(10).phase == "Succeeded"
        assert backend("local").runs()[0].run == run.id


def test_200_replicas_go_up_and_down(folder: Path) -> None:
    with running(experiment({"name": "actor", "replicas": 200, "command": ["sleep", "1000"]}), folder) as run:
        status = until_running(run)
        assert status.roles[0].ready == 200
        run.stop()
        assert run.wait(20).phase == "Stopped"
        assert not processes_of(run)
