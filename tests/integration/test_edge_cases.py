"""Moments that seldom come and must go well: things happening at once, files gone, disks full, wrong folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from local_runs import (
    PYTHON,
    backend,
    eventually,
    experiment,
    lines,
    program,
    python,
    replica,
    running,
    until,
    until_all_spoke,
    until_running,
)

from callsheet.backends.base import LogQuery, Target
from callsheet.backends.local import launch
from callsheet.backends.local.supervisor import procfs
from callsheet.errors import InvalidExperiment, UserError

ELASTIC = {"scale": {"min": 0, "max": 60}}


def test_scaling_one_role_does_not_undo_another_that_still_drains(folder: Path) -> None:
    slow = {"name": "actor", "replicas": 3, **ELASTIC, "terminationGracePeriod": "1s"}
    exp = experiment(
        {**slow, "command": program("patient.py", "--stubborn")},
        {"name": "eval", "replicas": 1, **ELASTIC, "command": program("patient.py")},
    )
    with running(exp, folder) as run:
        until_all_spoke(run)
        run.scale({"actor": 1})
        status = run.scale({"eval": 2})
        assert [role.wanted for role in status.roles] == [1, 2]
        status = until(run, lambda s: len(s.replicas) == 3)
        assert [r.name for r in status.replicas] == ["actor/0", "eval/0", "eval/1"]


def test_sizes_tell_what_is_wanted_and_a_finished_run_forgets_who_was_scaled_away(folder: Path) -> None:
    exp = experiment(
        {"name": "actor", "replicas": 20, **ELASTIC, "command": ["sleep", "1000"]},
        {"name": "eval", **ELASTIC, "command": python("pass")},
    )
    with running(exp, folder) as run:
        until(run, lambda s: s.roles[1].succeeded == 1)
        run.scale({"actor": 2, "eval": 0})
        status = until(run, lambda s: len(s.replicas) == 2)
        assert [role.wanted for role in status.roles] == [2, 0]
        run.stop()
        assert len(run.wait(10).replicas) == 2


def test_growing_and_shrinking_leaks_no_descriptors(folder: Path) -> None:
    with running(experiment({"name": "actor", **ELASTIC, "command": ["sleep", "1000"]}), folder) as run:
        supervisor = until_running(run).supervisor

        def breathe() -> int:
            run.scale({"actor": 40})
            until(run, lambda s: s.roles[0].ready == 40)
            run.scale({"actor": 1})
            until(run, lambda s: len(s.replicas) == 1)
            return len(os.listdir(f"/proc/{supervisor}/fd"))

        first = breathe()
        assert breathe() <= first + 3


def test_a_role_scaled_to_nothing_has_not_succeeded(folder: Path) -> None:
    role = {"name": "learner", "replicas": 1, **ELASTIC, "command": program("patient.py")}
    with running(experiment(role, lifecycle={"success": ["learner"]}), folder) as run:
        until_running(run)
        run.scale({"learner": 0})
        status = until(run, lambda s: not s.replicas)
        assert status.phase == "Running"


def test_the_last_lines_of_a_flood_come_at_once(folder: Path) -> None:
    with running(experiment({"name": "flood", "command": program("flood.py")}), folder) as run:
        until(run, lambda s: replica(s, "flood/0").containers[0].log_bytes > 5_000_000)
        for _ in range(20):
            assert len(list(run.logs(LogQuery(tail=2)))) == 2


def test_an_empty_role_is_checked_before_the_start_too(folder: Path) -> None:
    role = {"name": "later", "replicas": 0, **ELASTIC, "command": ["no-such-program"]}
    exp = experiment({"name": "now", "command": python("pass")}, role)
    with pytest.raises(InvalidExperiment, match=r"spec.roles\[later\].command: there is no program"):
        backend("local").check(exp, base=folder)


def test_a_secret_that_is_no_text_is_said_before_the_start(folder: Path) -> None:
    place = folder / ".callsheet" / "secrets" / "cloud"
    place.mkdir(parents=True)
    (place / "token").write_bytes(b"\xff\xfe")
    source = {"secretKeyRef": {"name": "cloud", "key": "token"}}
    role = {"name": "actor", "command": python("pass"), "env": [{"name": "T", "valueFrom": source}]}
    with pytest.raises(InvalidExperiment, match="Secret 'cloud' cannot be read: not text in UTF-8"):
        backend("local").start(experiment(role), base=folder)


def test_a_volume_that_cannot_be_made_is_the_replicas_failure(folder: Path) -> None:
    role = {
        "name": "actor",
        "command": python("pass"),
        "restart": {"policy": "Never"},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
    }
    exp = experiment(role, volumes=[{"name": "v", "hostPath": {"path": "/proc/nowhere"}}])
    with running(exp, folder) as run:
        status = run.wait(20)
        assert status.phase == "Failed"
        assert "/proc/nowhere" in status.reason


@pytest.mark.parametrize("variable", ["XDG_STATE_HOME", "storage"])
def test_a_place_that_cannot_be_written_is_said_and_nothing_runs(
    folder: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"storage": "file:///proc/nowhere"} if variable == "storage" else {}
    if variable != "storage":
        monkeypatch.setenv(variable, "/proc/nowhere")
    long = "77.7" if variable == "storage" else "88.8"
    exp = experiment({"name": "actor", "command": ["sleep", long]}, **spec)
    with pytest.raises(UserError, match=r"cannot write the run's folder: .*/proc/nowhere"):
        backend("local").start(exp, base=folder, detach=True)
    assert not list((folder / "runs").glob("exp/*"))
    assert subprocess.run(["pgrep", "-f", f"sleep {long}"], capture_output=True).returncode == 1


def test_a_run_without_supervisor_and_guard_is_over_whatever_their_numbers_are_now(folder: Path) -> None:
    with running(experiment({"name": "actor", "command": program("patient.py")}), folder) as run:
        status = until_all_spoke(run)
        guard = subprocess.run(["pgrep", "-f", f"supervisor.guard {run.id}"], capture_output=True, text=True)
        os.kill(int(guard.stdout), signal.SIGSTOP)
        os.kill(status.supervisor, signal.SIGKILL)
        os.kill(int(guard.stdout), signal.SIGKILL)
        data = json.loads(Path(run.layout.status).read_text())
        Path(run.layout.status).write_text(json.dumps(data | {"supervisor": os.getpid()}))
        follower = threading.Thread(target=lambda: list(run.logs(LogQuery(follow=True))))
        follower.start()
        run.stop()
        assert run.wait(10).phase == "Failed"
        follower.join(10)
        assert not follower.is_alive()
        assert not procfs.find_processes(procfs.identity(run.id))
        run.delete()
        run.folder.mkdir(parents=True)  # so that the end of the test finds a run to stop
        Path(run.layout.status).write_text(json.dumps(data | {"phase": "Failed"}))


def test_a_member_that_joined_has_its_grace_period_and_its_secrets(folder: Path) -> None:
    place = folder / ".callsheet" / "secrets" / "cloud"
    place.mkdir(parents=True)
    (place / "token").write_text("hunter2\n")
    source = {"secretKeyRef": {"name": "cloud", "key": "token"}}
    role = {"name": "actor", "command": program("patient.py"), "env": [{"name": "T", "valueFrom": source}]}
    late = (
        "import os,signal,sys,time\n"
        "signal.signal(15, lambda *_: (time.sleep(1), print('saved', os.environ['T'] == 'hunter' + str(2)), sys.exit(0)))\n"
        "print('here', flush=True)\n"
        "while True: time.sleep(0.1)"
    )
    with running(experiment(role), folder) as run:
        until_running(run)
        command = [sys.executable, "-m", "callsheet", "join", run.id, "actor", "--", PYTHON, "-c", late]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
            assert member.stdout
            assert member.stdout.readline() == "here\n"
            run.stop()
            assert member.stdout.read() == "saved True\n"
            assert member.wait(10) == 0
        assert run.wait(10).phase == "Stopped"


def test_joining_a_run_that_has_ended_is_said(folder: Path) -> None:
    with running(experiment({"name": "actor", "command": python("pass")}), folder) as run:
        run.wait(10)
        eventually(lambda: not os.path.exists(run.layout.socket))
        with pytest.raises(UserError, match="has ended"):
            run.join("actor", ["true"])


def test_an_experiments_name_comes_before_the_beginning_of_another_runs_id(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = iter(["tdxxxxxx", "qqqqqqqq"])
    monkeypatch.setattr(launch, "new_run_id", lambda: next(ids))
    other = experiment({"name": "actor", "command": python("pass")}, name="other")
    mine = experiment({"name": "actor", "command": python("pass")}, name="td")
    with running(other, folder) as first, running(mine, folder) as second:
        assert backend("local").find("td").id == second.id
        assert backend("local").find("tdx").id == first.id
        assert backend("local").find("td/qqqq").id == second.id
        with pytest.raises(UserError, match="there is no run"):
            backend("local").find("")


def test_looking_at_runs_while_they_come_and_go(folder: Path) -> None:
    over = threading.Event()
    trouble: list[Exception] = []

    def look() -> None:
        while not over.is_set():
            try:
                backend("local").runs()
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not happen
                trouble.append(error)

    watcher = threading.Thread(target=look)
    watcher.start()
    exp = experiment({"name": "actor", "command": ["true"]})
    for _ in range(6):
        run = backend("local").start(exp, base=folder, detach=True)
        run.wait(10)
        run.delete()
    over.set()
    watcher.join()
    assert not trouble


def test_a_probes_last_answer_is_told(folder: Path) -> None:
    probes = {
        "missing": {"exec": {"command": ["no-such-program"]}},
        "failing": {"exec": {"command": ["false"]}},
        "closed": {"tcpSocket": {"port": 1}},
    }
    roles = [
        {"name": name, "command": program("patient.py"), "readinessProbe": probe}
        for name, probe in probes.items()
    ]
    with running(experiment(*roles), folder) as run:
        status = until(run, lambda s: all(":" in r.reason for r in s.replicas))
        reasons = [r.reason.rpartition(": ")[2] for r in status.replicas]
        assert reasons[0] == "No such program on PATH"
        assert reasons[1] == "exit code 1"
        assert reasons[2] == "nothing listens on port 1"


def test_the_output_of_two_attempts_is_not_glued_together(folder: Path) -> None:
    code = "import os,sys; sys.stdout.write('attempt ' + os.environ['CALLSHEET_ATTEMPT']); sys.exit(1)"
    exp = experiment({"name": "actor", "command": python(code), "restart": {"limit": 2}})
    with running(exp, folder) as run:
        run.wait(20)
        assert lines(run, "actor") == ["attempt 0", "attempt 1", "attempt 2"]


def test_a_container_that_comes_back_is_counted_where_people_look(folder: Path) -> None:
    group = [
        {"name": "main", "command": program("patient.py")},
        {"name": "beside", "command": program("patient.py")},
    ]
    with running(experiment({"name": "pair", "containers": group}), folder) as run:
        beside = replica(until_all_spoke(run), "pair/0").containers[1].pid
        os.kill(beside, signal.SIGKILL)
        status = until(run, lambda s: s.roles[0].restarts == 1)
        assert replica(status, "pair/0").restarts == 1
        assert status.restarts == 0, "no budget is used"
        assert run.restart([Target("pair", 0)]) == ["pair/0"]


def test_a_program_that_is_not_there_ends_exec_and_join_as_in_a_shell(folder: Path) -> None:
    with running(experiment({"name": "actor", "command": program("patient.py")}), folder) as run:
        until_running(run)
        for words in (["exec", run.id, "actor/0"], ["join", run.id, "actor"]):
            command = [sys.executable, "-m", "callsheet", *words, "--", "no-such-program"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 127
            assert "cannot start 'no-such-program': No such file or directory" in done.stderr
