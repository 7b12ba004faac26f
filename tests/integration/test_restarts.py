"""What happens when a process ends: restart policies, budgets, success and failure of the run."""

from __future__ import annotations

import signal
from pathlib import Path

from local_runs import (
    PYTHON,
    experiment,
    kill,
    lines,
    program,
    python,
    replica,
    running,
    until,
    until_all_spoke,
    until_running,
)

from callsheet.backends.base import Target


def test_a_killed_replica_comes_back_as_itself(folder: Path) -> None:
    role = {"name": "actor", "replicas": 2, "binds": [{"name": "echo", "port": 9999}]}
    exp = experiment({**role, "command": program("server.py", "ECHO")})
    with running(exp, folder) as run:
        status = until_running(run)
        before = replica(status, "actor/1")
        kill(status, "actor/1")
        after = replica(
            until(run, lambda s: replica(s, "actor/1").attempt == 1 and s.roles[0].ready == 2), "actor/1"
        )
        assert (after.index, after.host) == (before.index, before.host)
        assert after.restarts == 1
        assert replica(run.status(), "actor/0").attempt == 0


def test_the_attempt_is_told_to_the_process_and_counts_up(folder: Path) -> None:
    code = "import os,sys; print('attempt', os.environ['CALLSHEET_ATTEMPT']); sys.exit(os.environ['CALLSHEET_ATTEMPT'] != '2')"
    with running(experiment({"name": "learner", "command": python(code)}), folder) as run:
        assert run.wait(20).phase == "Succeeded"
        assert lines(run, "learner") == ["attempt 0", "attempt 1", "attempt 2"]


def test_a_replica_that_keeps_failing_fails_the_run_with_its_exit_code(folder: Path) -> None:
    failing = {"name": "learner", "command": python("raise SystemExit(7)"), "restart": {"limit": 1}}
    with running(experiment(failing, {"name": "actor", "command": program("patient.py")}), folder) as run:
        status = run.wait(20)
        assert (status.phase, status.exit_code) == ("Failed", 7)
        assert status.reason == "learner/0 failed: exit code 7; it was restarted once, its limit"
        assert replica(status, "actor/0").phase == "Stopped"


def test_a_replica_that_says_that_no_restart_can_fix_it_fails_immediately(folder: Path) -> None:
    hopeless = {"name": "learner", "command": python("raise SystemExit(78)")}
    with running(experiment(hopeless), folder) as run:
        status = run.wait(20)
        assert (status.phase, status.exit_code, status.restarts) == ("Failed", 78, 0)
        assert status.reason == "learner/0 failed: exit code 78; a restart cannot fix this: see its log"


def test_a_signal_that_ended_a_replica_is_named(folder: Path) -> None:
    suicide = {
        "name": "learner",
        "command": python("import os; os.kill(os.getpid(), 9)"),
        "restart": {"policy": "Never"},
    }
    with running(experiment(suicide), folder) as run:
        status = run.wait(20)
        assert "killed by SIGKILL; its restart policy is Never" in status.reason
        assert status.exit_code == 128 + 9


def test_the_budget_of_restarts_is_the_whole_runs(folder: Path) -> None:
    failing = {"name": "actor", "replicas": 4, "command": python("raise SystemExit(3)")}
    with running(experiment(failing, lifecycle={"maxRestarts": 5}), folder) as run:
        status = run.wait(20)
        assert "maxRestarts" in status.reason
        assert status.restarts == 5


def test_always_starts_again_after_success_too(folder: Path) -> None:
    again = {"name": "server", "command": python("print('again')"), "restart": {"policy": "Always"}}
    with running(experiment(again), folder) as run:
        status = until(run, lambda s: replica(s, "server/0").attempt >= 2)
        assert status.restarts == 0, "an end with 0 takes nothing from the budget"


def test_the_run_succeeds_when_the_named_roles_have_ended(folder: Path) -> None:
    learner = {"name": "learner", "command": ["sh", "-c", "until [ -e go ]; do sleep 0.05; done"]}
    actor = {"name": "actor", "replicas": 2, "command": program("patient.py")}
    with running(experiment(learner, actor, lifecycle={"success": ["learner"]}), folder) as run:
        until_all_spoke(run, "actor")
        (folder / "go").touch()
        status = run.wait(20)
        assert (status.phase, status.exit_code) == ("Succeeded", 0)
        assert [r.phase for r in status.replicas] == ["Succeeded", "Stopped", "Stopped"]
        assert lines(run, "actor/1")[-1] == "stopping", "the rest was asked to stop, not killed"


def test_without_named_roles_all_that_can_end_must_end(folder: Path) -> None:
    ends = {"name": "learner", "command": python("pass")}
    serves = {"name": "server", "command": program("patient.py"), "restart": {"policy": "Always"}}
    with running(experiment(ends, {**ends, "name": "actor", "replicas": 2}, serves), folder) as run:
        assert run.wait(20).phase == "Succeeded"


def test_the_deadline_fails_the_run(folder: Path) -> None:
    exp = experiment({"name": "actor", "command": program("patient.py")}, lifecycle={"deadline": "1s"})
    with running(exp, folder) as run:
        status = run.wait(20)
        assert (status.phase, status.exit_code, status.reason) == (
            "Failed",
            124,
            "the deadline of 1 s has passed",
        )


def test_a_program_that_is_interrupted_has_not_finished(folder: Path) -> None:
    """What an eviction does to a pod: SIGTERM from outside, while the run should continue."""
    code = """
from callsheet.runtime import Context
with Context.from_env() as ctx:
    print("up", flush=True)
    ctx.sleep(600)
"""
    with running(experiment({"name": "learner", "command": [PYTHON, "-c", code]}), folder) as run:
        status = until_all_spoke(run)
        kill(status, "learner/0", signal.SIGTERM)
        status = until(run, lambda s: replica(s, "learner/0").attempt == 1 or s.done)
        assert (status.phase, replica(status, "learner/0").restarts) == ("Running", 1)
        run.stop()
        assert run.wait(20).phase == "Stopped"


def test_restart_by_hand_costs_no_budget(folder: Path) -> None:
    with running(
        experiment({"name": "actor", "replicas": 3, "command": program("patient.py")}), folder
    ) as run:
        before = {r.name: r.containers[0].pid for r in until_all_spoke(run).replicas}
        assert run.restart([Target("actor", 1)]) == ["actor/1"]
        status = until(run, lambda s: replica(s, "actor/1").attempt == 1 and s.roles[0].ready == 3)
        after = {r.name: r.containers[0].pid for r in status.replicas}
        assert {name for name in before if before[name] != after[name]} == {"actor/1"}
        assert status.restarts == 0
        assert "stopping" in lines(run, "actor/1")


def test_a_program_that_vanishes_after_the_start_is_reported_by_its_replica(folder: Path) -> None:
    tool = folder / "tool"
    tool.write_text("#!/bin/sh\nrm -f tool\nexit 1\n")
    tool.chmod(0o755)
    exp = experiment({"name": "actor", "command": ["./tool"], "restart": {"limit": 1}})
    with running(exp, folder) as run:
        status = run.wait(20)
        assert "cannot start './tool': No such file or directory" in status.reason
        assert status.exit_code == 127
        assert lines(run, "actor")[-1].startswith("callsheet: cannot start")
