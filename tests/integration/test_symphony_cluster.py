"""Symphony's clusters with real processes: launch, look, reach in, end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_runs import eventually

from callsheet.backends.base import backend
from callsheet.compat.symphony.engine import Cluster
from callsheet.compat.symphony.kube import KubeCluster, KubeExperimentSpec
from callsheet.errors import CallsheetError, UserError

SERVER = "import os, time; print('hello from', os.environ['SYMPHONY_ROLE'], flush=True); time.sleep(600)"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeCluster]:
    """A script's Kubernetes cluster, on this machine; whatever it launched is ended with the test."""
    monkeypatch.setenv("CALLSHEET_ON", "local")
    yield Cluster.new("kubernetes")
    for status in backend("local").runs():
        run = backend("local").find(status.run)
        run.stop(kill=True)
        run.wait(20)


def experiment(cluster: KubeCluster, folder: Path) -> KubeExperimentSpec:
    """A process of its own and a group of two."""
    exp: KubeExperimentSpec = cluster.new_experiment("rl")
    exp.base = folder
    command: dict[str, Any] = {"command": sys.executable, "args": ["-c", SERVER]}
    exp.new_process("agent", **command)
    group = exp.new_process_group("nonagent")
    group.new_process("learner", **command).exposes({"tensorboard": 6006})
    group.new_process("replay", **command)
    return exp


def test_a_launched_experiment_can_be_looked_at(cluster: KubeCluster, folder: Path) -> None:
    run = cluster.launch(experiment(cluster, folder))
    assert run
    eventually(lambda: "hello" in cluster.get_log("rl", "agent"))

    assert cluster.list_experiments() == ["rl"]
    assert cluster.fuzzy_match_experiment("r") == ["rl"]
    assert cluster.fuzzy_match_process("lear", "rl") == ["learner"]
    described = cluster.describe_experiment("rl")
    assert set(described) == {None, "nonagent"}
    assert set(described["nonagent"]) == {"learner", "replay"}
    assert cluster.describe_process("rl", "agent") == {"Ready": True, "Restarts": 0, "State": "Running"}
    assert cluster.describe_process_group("rl", "nonagent") == cluster.describe_experiment("rl")["nonagent"]
    assert cluster.external_url("rl", "tensorboard").endswith(":6006")


def test_logs_of_one_process_of_a_group(
    cluster: KubeCluster, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.launch(experiment(cluster, folder))

    eventually(lambda: cluster.get_log_when_alive("rl", "replay", sleep_interval=0.1))
    assert cluster.get_log("rl", "replay", print_logs=True) == "hello from replay"
    assert "hello from replay" in capsys.readouterr().out
    eventually(
        lambda: cluster.get_log("rl", "learner", "nonagent", since="1h", tail=1) == "hello from learner"
    )


def test_names_that_are_not_there(cluster: KubeCluster, folder: Path) -> None:
    cluster.launch(experiment(cluster, folder))

    with pytest.raises(UserError, match=r"no process 'lerner'\n.*nonagent/learner"):
        cluster.get_log("rl", "lerner")
    with pytest.raises(UserError, match="no group 'agents'"):
        cluster.describe_process_group("rl", "agents")
    with pytest.raises(UserError, match="exposes no service 'web'"):
        cluster.external_url("rl", "web")
    with pytest.raises(UserError, match="other"):
        cluster.get_log("other", "agent")


def test_reaching_into_a_process(cluster: KubeCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.launch(experiment(cluster, folder))
    (folder / "elsewhere").mkdir()
    (folder / "note.txt").write_text("from the process's folder")

    code = "import os, sys; sys.exit(os.environ['SYMPHONY_ROLE'] != 'learner')"
    assert cluster.exec_command("rl", "learner", [sys.executable, "-c", code]) == 0
    assert cluster.exec_command("rl", "agent", [sys.executable, "-c", code]) == 1
    assert cluster.login("rl", "agent") == 0  # there is no terminal here: the shell ends at once
    monkeypatch.chdir(folder / "elsewhere")
    cluster.transfer_file("rl", "note.txt", "copy.txt", src_process="agent")
    assert (folder / "elsewhere" / "copy.txt").read_text() == "from the process's folder"
    cluster.transfer_file("rl", "copy.txt", "back.txt", dest_process="learner", dest_process_group="nonagent")
    assert (folder / "back.txt").exists()
    with pytest.raises(UserError, match="give src_process or dest_process"):
        cluster.transfer_file("rl", "a", "b")
    with pytest.raises(UserError, match="could not copy"):
        cluster.transfer_file("rl", "not-there", "x", src_process="agent")


def test_a_second_launch_needs_force(cluster: KubeCluster, folder: Path) -> None:
    first = cluster.launch(experiment(cluster, folder))
    assert first

    with pytest.raises(UserError, match="already running"):
        cluster.launch(experiment(cluster, folder))
    second = cluster.launch(experiment(cluster, folder), force=True)

    assert second
    assert first.status().phase == "Stopped"
    assert cluster.list_experiments() == ["rl"]


def test_delete_stops_and_keeps_the_results(cluster: KubeCluster, folder: Path) -> None:
    run = cluster.launch(experiment(cluster, folder))
    assert run
    eventually(lambda: cluster.get_log("rl", "agent"))

    cluster.delete_batch(["rl"])

    assert cluster.list_experiments() == []
    assert run.status().phase == "Stopped"
    assert cluster.get_log("rl", "agent") == "hello from agent"


def test_a_dry_run_prints_and_starts_nothing(
    cluster: KubeCluster, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.launch(experiment(cluster, folder), dry_run=True) is None

    assert "SYMPH_TENSORBOARD_ADDR" in capsys.readouterr().out
    assert cluster.list_experiments() == []


def test_tmux_processes_talk_to_each_other(cluster: KubeCluster, folder: Path) -> None:
    tmux = Cluster.new("tmux")
    exp = tmux.new_experiment("hello", start_dir=str(folder), preamble_cmds="export GREETING=hi")
    exp.new_process("server", cmds=['echo "$GREETING $SYMPH_EXAMPLE_ADDR" > server.txt']).binds("example")
    exp.new_process("client", cmds=['echo "$GREETING $SYMPH_EXAMPLE_ADDR" > client.txt']).connects("example")

    (run,) = tmux.launch_batch([exp])

    assert run
    assert run.wait(20).phase == "Succeeded"
    assert (folder / "server.txt").read_text() == (folder / "client.txt").read_text()
    assert (folder / "server.txt").read_text().startswith("hi 127.")


def test_subproc_shows_the_output_and_returns_at_the_end(
    cluster: KubeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    subproc = Cluster.new("subproc")
    exp = subproc.new_experiment("lines")
    exp.new_process("a", "echo one")
    exp.new_process_group("g").new_process("b", ["echo", "two"])

    run = subproc.launch(exp)

    assert run.status().phase == "Succeeded"
    printed = capsys.readouterr().out
    assert "a: one" in printed
    assert "g:b: two" in printed


def test_subproc_ends_all_when_one_fails(cluster: KubeCluster) -> None:
    subproc = Cluster.new("subproc", stdout_mode="none", stderr_mode="none")
    exp = subproc.new_experiment("fails")
    exp.new_process("good", "sleep 600")
    exp.new_process("bad", "false")

    with pytest.raises(CallsheetError, match="experiment 'fails' failed"):
        subproc.launch(exp)
    assert subproc.list_experiments() == []
