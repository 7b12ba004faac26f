"""What each verb asks of a backend and prints, with a backend that runs nothing."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
import yaml
from fake_backend import FakeBackend, FakeRun, replica, status

from callsheet.backends import base
from callsheet.backends.base import LogLine, LogQuery, Target
from callsheet.cli.main import call

ACTIVE = "bandit-2"
ENDED = "bandit-1"


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    """An active run and one that has failed."""
    lines = [LogLine("learner", 0, "learner", "loss 1"), LogLine("actor", 1, "actor", "\x1b[31mstep\x1b[0m")]
    group = [base.ContainerStatus(name="policy"), base.ContainerStatus(name="sim")]
    active = status(
        ACTIVE,
        "Running",
        replica("learner", 0),
        replica("actor", 0),
        replica("actor", 1, ready=False, reason="waits for port 9"),
        replica("simulation", 0, containers=group),
        exposed={"board": "127.0.0.9:6006"},
    )
    failed = status(
        ENDED,
        "Failed",
        exit_code=3,
        reason="learner/0 failed",
        finished=time.time() - 5000,
        created=time.time() - 9000,
    )
    fake = FakeBackend(FakeRun(active, lines=lines), FakeRun(failed, lines=lines))
    monkeypatch.setattr(base, "backend", lambda name: fake)
    return fake


@pytest.mark.usefixtures("backend")
def test_attaching_to_a_run_that_has_ended_says_how_in_the_wanted_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["attach", ENDED, "-o", "json"]) == 3
    out, err = capsys.readouterr()
    assert (json.loads(out)["run"], json.loads(out)["phase"]) == (ENDED, "Failed")
    assert "bandit Failed" in err
    assert call(["attach", ENDED]) == 3
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("backend")
def test_a_dry_run_answers_in_the_wanted_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "apiVersion: callsheet.dev/v1alpha1\nkind: Experiment\nmetadata: {name: x}\n"
        "spec: {roles: [{name: a, command: [x]}]}\n"
    )
    for form, answer in (("json", [{"action": "create", "kind": "Experiment", "name": "x"}]), ("name", None)):
        assert call(["run", "-f", str(file), "--dry-run", "-o", form]) == 0
        out, _ = capsys.readouterr()
        assert json.loads(out) == answer if answer else out == "Experiment/x\n"
    assert call(["run", "-f", str(file), "--dry-run"]) == 0
    assert "Experiment/x would be created: 1 a" in capsys.readouterr().err


@pytest.mark.usefixtures("backend")
def test_ps_lists_active_runs_and_with_a_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["ps"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["RUN", "EXPERIMENT", "PHASE", "READY", "RESTARTS", "AGE", "FOLDER"]
    assert [row.split()[:4] for row in rows] == [[ACTIVE, "bandit", "Running", "3/4"]]
    assert call(["ps", "-a", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == [ACTIVE, ENDED]
    assert call(["ps", "-a", "-o", "wide"]) == 0
    assert "learner/0 failed" in capsys.readouterr().out


def test_ps_without_runs_says_so_on_stderr_and_prints_an_empty_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(base, "backend", lambda name: FakeBackend())
    assert call(["ps", "-o", "json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == []
    assert "No active runs" in shown.err


@pytest.mark.usefixtures("backend")
def test_status_shows_the_newest_active_run_unless_another_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call(["status"]) == 0
    shown = capsys.readouterr().out
    assert ACTIVE in shown
    assert "Running, 3 of 4 ready" in shown
    assert "127.0.0.9:6006" in shown
    assert "waits for port 9" in shown
    assert call(["status", ENDED]) == 0
    assert "exit code 3" in capsys.readouterr().out


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_status_as_data_reads_back(
    backend: FakeBackend, form: str, read, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["status", "-o", form]) == 0
    assert base.Status.from_data(read(capsys.readouterr().out)) == backend.known[0].status()


@pytest.mark.usefixtures("backend")
def test_status_wide_shows_every_container(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["status", "-o", "wide"]) == 0
    assert "simulation/0/sim" in capsys.readouterr().out


@pytest.mark.usefixtures("backend")
def test_watching_prints_again_when_something_changed(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    first = status("w", "Running", replica("actor", 0, ready=False))
    again = status("w", "Running", replica("actor", 0, ready=False, uptime=13.0))
    ended = status("w", "Succeeded", replica("actor", 0, "Succeeded"), exit_code=0)
    backend.known.insert(0, FakeRun(first, again, ended))
    assert call(["status", "w", "-w", "-o", "json"]) == 0
    shown = capsys.readouterr().out
    assert shown.count('"phase": "Running"') == 2  # the run's and its replica's, in one print
    assert '"phase": "Succeeded"' in shown


def test_watching_runs_prints_them_again_when_one_changed(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            backend.known[0].states.append(status(ACTIVE, "Stopping"))
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", wait)
    assert call(["ps", "-w"]) == 130
    shown = capsys.readouterr().out
    assert shown.count("Running") == 1
    assert shown.count("Stopping") == 1


def test_logs_prefix_lines_and_keep_their_bytes_when_no_terminal_looks(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["logs", ACTIVE]) == 0
    assert capsys.readouterr().out == "learner/0 | loss 1\nactor/1 | \x1b[31mstep\x1b[0m\n"
    assert backend.known[0].asked == [LogQuery(targets=[])]


def test_logs_pass_every_filter_on(backend: FakeBackend) -> None:
    arguments = [
        "-f",
        "--since",
        "5m",
        "--tail",
        "3",
        "--grep",
        "a|b",
        "-c",
        "sim",
        ACTIVE,
        "actor/0",
        "simulation",
    ]
    assert call(["logs", *arguments]) == 0
    targets = [Target("actor", 0), Target("simulation")]
    assert backend.known[0].asked == [
        LogQuery(targets=targets, container="sim", follow=True, tail=3, since=300.0, grep="a|b")
    ]


def test_logs_of_one_container_need_no_prefix_and_the_run_may_be_left_out(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.known[0].lines = [LogLine("learner", 0, "learner", "loss 1")]
    assert call(["logs", "learner"]) == 0
    assert capsys.readouterr().out == "loss 1\n"
    assert backend.known[0].asked == [LogQuery(targets=[Target("learner")])]


def test_the_log_of_a_replica_that_was_scaled_away_can_still_be_read(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.known[0].lines = [LogLine("actor", 40, "actor", "bye")]
    assert call(["logs", ACTIVE, "actor/40"]) == 0
    assert capsys.readouterr().out == "bye\n"
    backend.known[0].lines = []
    assert call(["logs", ACTIVE, "actor/41"]) == 2
    said = capsys.readouterr().err
    assert "has no replica actor/41, and no log of an earlier one" in said
    assert "actor has actor/0 to actor/1" in said


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["logs", "nothing"], "there is no run 'nothing'"),
        (["logs", ACTIVE, "acto"], "did you mean actor?"),
        (["logs", ACTIVE, "xyzzy"], "choose one of: learner, actor, simulation"),
        (["logs", ACTIVE, "actor/7"], "actor has actor/0 to actor/1"),
        (["logs", ACTIVE, "-c", "gym"], "choose one of: learner, actor, policy, sim"),
        (["logs", "-f", ACTIVE, "-c", "gym", "simulation"], "simulation has no container 'gym'"),
        (["status", ""], "RUN is empty"),
        (["stop", ACTIVE, ""], "RUN is empty"),
        (["scale", "", "actor=2"], "RUN is empty"),
        (["logs", ACTIVE, "--grep", "("], "is not a valid regular expression"),
        (["logs", ACTIVE, "--since", "5"], "is not a duration"),
        (["exec", ACTIVE, "actor", "--", "ls"], "write actor/0"),
        (["exec", "-c", "gym", ACTIVE, "simulation/0", "--", "ls"], "choose one of: policy, sim"),
        (["join", ACTIVE, "actor", "--", "ls"], "cannot join by hand"),
        (["scale", ACTIVE, "actor"], "write for example actor=8"),
        (["scale", ACTIVE, "critic=2"], "has no role 'critic'"),
        (["scale", ACTIVE, "actr=3"], "did you mean actor?"),
        (["scale", ACTIVE, "actor=2", "actor=3"], "actor is given twice, with 2 and 3 replicas"),
        (["restart", ACTIVE], "or use --all"),
        (["restart", ACTIVE, "simulation/0/sim"], "only whole replicas can be restarted"),
        (["stop", "--all", ACTIVE], "leave one of them out"),
        (["delete"], "--older-than 7d"),
        (["delete", ACTIVE], f"callsheet stop {ACTIVE}"),
        (["delete", ENDED], "add --yes"),
    ],
)
def test_mistakes_are_refused_with_the_way_out(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(arguments) == 2
    assert said in capsys.readouterr().err


def test_exec_hands_the_command_over_and_its_exit_code_back(backend: FakeBackend) -> None:
    assert call(["exec", ACTIVE, "simulation/0", "-c", "sim", "--", "ls", "-c", "--tail"]) == 7
    assert backend.known[0].asked == [("exec", Target("simulation", 0, "sim"), ["ls", "-c", "--tail"])]


def test_scale_and_restart_name_what_they_did(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["scale", ACTIVE, "actor=8", "learner=1"]) == 0
    assert capsys.readouterr().out == "actor: 2 -> 8\nlearner: 1 -> 1\n"
    assert call(["restart", ACTIVE, "actor"]) == 0
    assert capsys.readouterr().out == "actor/0\nactor/1\n"
    assert call(["restart", ACTIVE, "--all"]) == 0
    assert len(capsys.readouterr().out.split()) == 4
    assert backend.known[0].asked[0] == ("scale", {"actor": 8, "learner": 1})


def test_an_interrupted_start_stops_what_has_started(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    head = "apiVersion: callsheet.dev/v1alpha1\nkind: Experiment\n"
    body = "metadata: {name: NAME}\nspec: {roles: [{name: a, command: [sh]}]}\n"
    (tmp_path / "x.yaml").write_text(
        f"{head}{body}---\n{head}{body.replace('NAME', 'b')}".replace("NAME", "a")
    )
    started = iter([backend.known[0]])

    def start(*_: object, **__: object) -> FakeRun:
        for run in started:
            return run
        raise KeyboardInterrupt

    monkeypatch.setattr(backend, "start", start)
    assert call(["run", "-f", str(tmp_path / "x.yaml")]) == 130
    assert backend.known[0].asked == [("stop", None)]


def test_stop_without_a_name_takes_the_only_active_run(
    backend: FakeBackend, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["stop"]) == 0
    assert capsys.readouterr().out == f"{ACTIVE}: Stopped\n"
    backend.known.append(FakeRun(status("other-1", "Running")))
    assert call(["stop"]) == 2
    assert "name the ones to stop, or use --all" in capsys.readouterr().err
    assert call(["stop", "--all", "--now", "--no-wait"]) == 0
    assert backend.known[2].asked == [("kill", None)]


def test_delete_says_what_goes_and_goes_only_when_told(
    backend: FakeBackend, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_bytes(os.urandom(100_000))
    backend.known[1].states[0].folder = str(tmp_path)
    assert call(["delete", "--older-than", "2h", "--yes"]) == 0
    assert "No finished run is that old" in capsys.readouterr().err
    assert call(["delete", "--older-than", "1h", "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert ENDED in shown.out
    assert str(tmp_path) in shown.out
    assert "KiB" in shown.out
    assert backend.known[1].asked == []
    assert call(["delete", ENDED, "-y"]) == 0
    assert ENDED in capsys.readouterr().out
    assert backend.known[1].asked == ["delete"]
    assert backend.known[0].asked == []


def complete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str) -> list[str]:
    monkeypatch.setenv("_CALLSHEET_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    assert call([]) == 0
    return [item.split(",")[1] for item in capsys.readouterr().out.splitlines() if item]


@pytest.mark.usefixtures("backend")
def test_the_shell_completes_verbs_runs_and_replicas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete(monkeypatch, capsys, "callsheet st") == ["stop", "status"]
    assert complete(monkeypatch, capsys, "callsheet stop ") == [ACTIVE, "bandit"]
    assert complete(monkeypatch, capsys, "callsheet logs ban") == [ACTIVE, ENDED, "bandit"]
    assert complete(monkeypatch, capsys, "callsheet delete ") == [ENDED, "bandit"]
    assert complete(monkeypatch, capsys, f"callsheet logs {ACTIVE} act") == ["actor", "actor/0", "actor/1"]
    assert complete(monkeypatch, capsys, f"callsheet exec {ACTIVE} act") == ["actor/0", "actor/1"]
    assert complete(monkeypatch, capsys, f"callsheet join {ACTIVE} act") == ["actor"]
    assert complete(monkeypatch, capsys, f"callsheet logs {ACTIVE} -c s") == ["sim"]


def test_the_shell_completes_sizes_of_elastic_roles_alone(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert complete(monkeypatch, capsys, f"callsheet scale {ACTIVE} l") == ["learner="], "nothing says no"
    roles = [{"name": "learner"}, {"name": "actor", "scale": {"min": 1, "max": 8}}, {"name": "simulation"}]
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump({"spec": {"roles": roles}}))
    backend.known[0].states[0].folder = str(tmp_path)
    assert complete(monkeypatch, capsys, f"callsheet scale {ACTIVE} ") == ["actor="]
    assert complete(monkeypatch, capsys, f"callsheet scale {ACTIVE} actor=2 ") == []
