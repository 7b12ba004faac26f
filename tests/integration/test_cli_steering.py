"""A detached run seen and steered from other terminals, with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from callsheet.cli.main import call

PATIENCE = 90.0

EXPERIMENT = """\
apiVersion: callsheet.dev/v1alpha1
kind: Experiment
metadata: {name: many}
spec:
  image: not-used-here:1
  roles:
  - name: actor
    replicas: 2
    scale: {min: 1, max: 4}
    command: [sh, -c, 'echo "actor $CALLSHEET_INDEX attempt $CALLSHEET_ATTEMPT"; exec sleep 1000']
  - name: simulation
    containers:
    - {name: policy, command: [sh, -c, "echo policy up; exec sleep 1000"]}
    - {name: sim, command: [sh, -c, "echo sim up; exec sleep 1000"]}
"""

Answer = tuple[int, str, str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("many")


@pytest.fixture(autouse=True)
def _here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests of this file see the same runs."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))


@pytest.fixture(scope="module")
def run(place: Path) -> Iterator[str]:
    """The id of a run that goes on through the whole file."""
    (place / "many.yaml").write_text(EXPERIMENT)
    env = {**os.environ, "XDG_STATE_HOME": str(place / "state")}
    command = [sys.executable, "-m", "callsheet"]
    started = subprocess.run(
        [*command, "run", "-d", "-f", "many.yaml"],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    name = started.stdout.strip()
    assert f"callsheet logs -f {name}" in started.stderr
    assert f"callsheet stop {name}" in started.stderr
    assert "ignores: image" in started.stderr
    yield name
    subprocess.run([*command, "stop", "--all", "--now"], cwd=place, env=env, capture_output=True, check=False)


@pytest.fixture
def callsheet(capfd: pytest.CaptureFixture[str]):
    """Exit code, stdout and stderr of a command."""

    def ask(*arguments: str) -> Answer:
        capfd.readouterr()
        code = call(arguments)
        return code, *capfd.readouterr()

    return ask


def ready(callsheet, run: str) -> list[str]:
    """Names of the replicas, once all of them are ready."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        status = json.loads(callsheet("status", run, "-o", "json")[1])
        containers = [one for replica in status["replicas"] for one in replica["containers"]]
        spoke = all(one["last_line"] for one in containers)
        if status["phase"] == "Running" and spoke and all(one["ready"] for one in status["replicas"]):
            return [f"{replica['role']}/{replica['index']}" for replica in status["replicas"]]
        time.sleep(0.05)
    raise AssertionError(status)


def test_ps_and_status_find_it(callsheet, run: str) -> None:
    assert ready(callsheet, run) == ["actor/0", "actor/1", "simulation/0"]
    assert callsheet("ps", "-o", "name") == (0, f"{run}\n", "")
    code, shown, _ = callsheet("status")
    assert code == 0
    assert "Running, 3 of 3 ready" in shown


def test_logs_of_chosen_replicas(callsheet, run: str) -> None:
    ready(callsheet, run)
    assert callsheet("logs", run, "actor/1")[1] == "actor 1 attempt 0\n"
    assert callsheet("logs", run, "-c", "sim")[1] == "sim up\n"
    both = {"simulation/0/policy | policy up", "simulation/0/sim | sim up"}
    assert set(callsheet("logs", run, "simulation")[1].splitlines()) == both
    assert callsheet("logs", run, "--grep", "attempt", "--tail", "1")[1].count("\n") == 2


def test_exec_has_the_replicas_environment_and_exit_code(callsheet, run: str) -> None:
    ready(callsheet, run)
    code, shown, _ = callsheet(
        "exec", run, "actor/1", "--", "sh", "-c", "echo $CALLSHEET_ROLE-$CALLSHEET_INDEX; exit 9"
    )
    assert (code, shown) == (9, "actor-1\n")
    assert (
        callsheet("exec", run, "simulation/0", "-c", "sim", "--", "printenv", "CALLSHEET_CONTAINER")[1]
        == "sim\n"
    )
    code, _, said = callsheet("exec", run, "actor/1", "--", "no-such-program")
    assert (code, "no-such-program" in said) == (127, True)


def test_restart_gives_a_new_attempt(callsheet, run: str) -> None:
    ready(callsheet, run)
    assert callsheet("restart", run, "actor/0")[1] == "actor/0\n"
    limit = time.monotonic() + PATIENCE
    while callsheet("logs", run, "actor/0")[1] != "actor 0 attempt 0\nactor 0 attempt 1\n":
        assert time.monotonic() < limit


def test_scaling_changes_the_number_of_replicas(callsheet, run: str) -> None:
    ready(callsheet, run)
    assert callsheet("scale", run, "actor=3")[:2] == (0, "actor: 2 -> 3\n")
    assert "actor/2" in ready(callsheet, run)
    code, _, said = callsheet("scale", run, "actor=9")
    assert code == 2
    assert "4" in said, "the error names the bound"


def test_join_runs_a_member_in_this_terminal(callsheet, run: str) -> None:
    members = ready(callsheet, run)
    code, shown, _ = callsheet(
        "join", run, "actor", "--", "sh", "-c", "echo I am actor/$CALLSHEET_INDEX; exit 4"
    )
    assert code == 4
    assert shown.startswith("I am actor/")
    assert shown.removeprefix("I am ").strip() not in members


def test_the_shell_completes_live_names(callsheet, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_CALLSHEET_COMPLETE", "zsh_complete")
    monkeypatch.setenv("COMP_WORDS", "callsheet stop ")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run in callsheet()[1].splitlines()


def test_plan_and_render_show_every_replica_and_start_nothing(callsheet, run: str) -> None:
    code, shown, _ = callsheet("plan", "-f", "many.yaml", "--set", "roles.actor.replicas=4")
    assert code == 0
    assert "1 more; see -o wide" in shown
    names = callsheet("plan", "-f", "many.yaml", "--set", "roles.actor.replicas=4", "-o", "name")[1].split()
    assert names == [*(f"many/actor/{index}" for index in range(4)), "many/simulation/0"]
    assert (
        "CALLSHEET_INDEX=3"
        in callsheet("plan", "-f", "many.yaml", "--set", "roles.actor.replicas=4", "-o", "wide")[1]
    )
    assert json.loads(callsheet("plan", "-f", "many.yaml", "-o", "json")[1])["experiment"] == "many"
    assert "experiment: many" in callsheet("render", "-f", "many.yaml")[1]
    assert callsheet("ps", "-a", "-o", "name")[1] == f"{run}\n"


def test_stop_and_delete_end_it(callsheet, run: str, place: Path) -> None:
    code, _, said = callsheet("delete", run)
    assert code == 2
    assert f"callsheet stop {run}" in said
    assert callsheet("stop", run)[:2] == (0, f"{run}: Stopped\n")
    assert "already ended" in callsheet("stop", run)[2]
    assert callsheet("logs", run, "actor/1")[1] == "actor 1 attempt 0\n", "logs of a finished run"
    code, shown, said = callsheet("delete", run, "--dry-run")
    assert run in shown
    assert "nothing was deleted" in said
    assert (place / "runs" / "many" / run).exists()
    assert callsheet("delete", run, "--yes")[0] == 0
    assert not (place / "runs" / "many" / run).exists()
    assert callsheet("ps", "-a", "-o", "json")[1] == "[]\n"
