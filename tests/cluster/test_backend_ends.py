"""How a run in the cluster ends: soon when told to, and `callsheet run` exits with the experiment's own code."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster_runs import FOREVER, begin, callsheet, cloud, experiment, folder, lines, python, until
from kubectl import Kube, eventually

from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.spec.dump import to_yaml

__all__ = ["begin", "cloud", "folder"]

Begin = Callable[..., KubernetesRun]
LONG = "90s"
"""A grace period that nobody would wait out here."""
PLAIN = ["sleep", "3600"]
"""A program that has never heard of SIGTERM."""


def test_a_program_without_a_handler_ends_at_once_and_takes_its_children_with_it(begin: Begin) -> None:
    patient = {"terminationGracePeriod": LONG}
    run = begin(
        {"name": "forks", **patient, "command": ["sh", "-c", "setsid sleep 3600 & sleep 1"]},
        {"name": "pair", **patient, "containers": [{"name": "main", "command": ["sleep", "1"]}, _beside()]},
        {"name": "plain", **patient, "command": PLAIN},
        {"name": "group", **patient, "containers": [{"name": "main", "command": PLAIN}, _beside()]},
        {"name": "server", **patient, "command": PLAIN, "restart": {"policy": "Always"}},
        lifecycle={"success": ["forks", "pair"]},
        detach=False,
    )
    status = run.wait(180)
    assert (status.phase, status.exit_code) == ("Succeeded", 0)
    assert {r.name: r.phase for r in status.replicas} == {
        "forks/0": "Succeeded",
        "pair/0": "Succeeded",
        "plain/0": "Stopped",
        "group/0": "Stopped",
        "server/0": "Stopped",
    }


def _beside() -> dict[str, Any]:
    return {"name": "sim", "command": PLAIN}


def test_the_exit_code_of_run_is_the_experiments(namespace: Kube, folder: Path, image: str) -> None:
    """All of them side by side: a run takes longer to come and go than to end."""
    once: dict[str, Any] = {"restart": {"policy": "Never"}}
    deadline = {"lifecycle": {"deadline": "3s"}}
    cases: dict[str, tuple[dict[str, Any], dict[str, Any], int, str]] = {
        "good": ({"command": python("print('enough')")}, {}, 0, "good Succeeded"),
        "bad": ({"command": python("raise SystemExit(7)"), **once}, {}, 7, "bad Failed"),
        "shot": ({"command": ["sh", "-c", "kill -9 $$"], **once}, {}, 137, "killed by SIGKILL"),
        "late": ({"command": python(FOREVER)}, deadline, 124, "deadline of 3 s"),
        "none": (
            {"command": ["no-such-program"], **once},
            {},
            127,
            "no-such-program: executable file not found",
        ),
        "stopped": ({"command": python(FOREVER)}, {}, 143, "stopped Stopped"),
    }
    env = os.environ | {"CALLSHEET_ON": "kubernetes"}
    clients: dict[str, subprocess.Popen[str]] = {}
    for name, (role, spec, _, _) in cases.items():
        file = folder / "code" / f"{name}.yaml"
        file.write_text(to_yaml(experiment({"name": "worker", **role}, name=name, image=image, **spec)))
        words = ["run", "-n", namespace.namespace, "-f", str(file)]
        command = [sys.executable, "-m", "callsheet", *words]
        clients[name] = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env
        )
    eventually(lambda: "Running" in callsheet(namespace, "status", "stopped").stdout)
    stopped = callsheet(namespace, "stop", "stopped")
    assert stopped.returncode == 0, stopped.stderr
    for name, (_, _, code, words) in cases.items():
        _, said = clients[name].communicate(timeout=180)
        assert (clients[name].returncode, words in said) == (code, True), (name, said)


def test_failures_of_a_role_that_always_restarts_use_its_limit_and_its_successes_do_not(begin: Begin) -> None:
    """Its program ends with 0, then fails twice; the limit is 1."""
    code = """
import pathlib
lives = pathlib.Path("/tmp/lives")
before = lives.read_text() if lives.exists() else ""
lives.write_text(before + "x")
raise SystemExit(0 if not before else 3)
"""
    server = {"name": "server", "command": python(code), "restart": {"policy": "Always", "limit": 1}}
    run = begin(server, detach=False)
    status = run.wait(240)
    assert (status.phase, status.exit_code, status.restarts) == ("Failed", 3, 1)
    assert status.reason == "server/0 failed: exit code 3; it was restarted once, its limit"
    assert status.replicas[0].phase == "Failed"


def test_each_run_has_a_key_of_its_own(begin: Begin) -> None:
    code = "import os; print(open(os.environ['CALLSHEET_KEYS'] + '/run.key', 'rb').read().hex())"
    keys = set()
    for _ in range(2):
        run = begin({"name": "worker", "command": python(code)}, detach=False)
        assert run.wait(180).phase == "Succeeded"
        keys.add(tuple(lines(run, "worker")))
    assert len(keys) == 2


def test_the_shell_completes_names_of_the_cluster(begin: Begin, namespace: Kube) -> None:
    run = begin(
        {"name": "actor", "replicas": 2, "command": python(FOREVER)},
        {"name": "learner", "command": python(FOREVER)},
    )
    until(run, lambda status: len(status.replicas) == 3)

    def complete(line: str) -> list[str]:
        words = {
            "_CALLSHEET_COMPLETE": "zsh_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
        }
        command = [sys.executable, "-m", "callsheet"]
        done = subprocess.run(command, env=os.environ | words, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()[1::3]

    place = f"--on kubernetes -n {namespace.namespace}"
    assert complete(f"callsheet status {place} ") == [run.id, "exp"]
    assert complete(f"callsheet logs {place} {run.id} act") == ["actor", "actor/0", "actor/1"]
    assert complete(f"callsheet exec {place} {run.id} lear") == ["learner/0"]
    assert complete(f"callsheet delete {place} ") == [], "it has not ended"
    assert complete(f"callsheet port-forward -n {namespace.namespace} e") == ["exp"]
