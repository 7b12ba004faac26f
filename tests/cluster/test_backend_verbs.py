"""Verbs that only a cluster has: port-forward, cp, diff, events, nodes, doctor, attach."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cluster_runs import (
    FOREVER,
    answer,
    begin,
    callsheet,
    cloud,
    experiment,
    folder,
    python,
    until,
    until_running,
)
from kubectl import Kube, eventually

from callsheet.backends.base import Target
from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.spec.dump import to_yaml

__all__ = ["begin", "cloud", "folder"]

Begin = Callable[..., KubernetesRun]
WEB = (
    "import http.server, socket\n"
    "class Handler(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self):\n"
    "        self.send_response(200); self.end_headers(); self.wfile.write(b'x' * 300_000)\n"
    "http.server.ThreadingHTTPServer(('', 8080), Handler).serve_forever()"
)


@contextmanager
def client(kube: Kube, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on until it is interrupted."""
    env = os.environ | {"CALLSHEET_ON": "kubernetes"}
    command = [sys.executable, "-m", "callsheet", words[0], "-n", kube.namespace, *words[1:]]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=180)


def test_a_port_of_a_replica_is_reached_from_this_machine(begin: Begin, namespace: Kube) -> None:
    board = {
        "name": "board",
        "command": python(WEB),
        "exposes": [{"name": "web", "port": 8080}],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
    }
    run = begin(board, {"name": "quiet", "command": python(FOREVER)})
    until_running(run)
    with client(namespace, "port-forward", run.id) as process:
        assert process.stdout is not None
        here, _, there = process.stdout.readline().strip().partition(" -> ")
        assert there == "board/0:8080"
        for _ in range(3):
            with urllib.request.urlopen(f"http://{here}", timeout=60) as answer:
                assert len(answer.read()) == 300_000
        before = run.pod(Target("board", 0))["metadata"]["uid"]
        run.restart([Target("board", 0)])
        until(run, lambda s: s.replicas[0].ready and run.pod(Target("board", 0))["metadata"]["uid"] != before)
        with urllib.request.urlopen(f"http://{here}", timeout=60) as answer:
            assert len(answer.read()) == 300_000, "the replica's new pod"
    nothing = callsheet(namespace, "port-forward", run.id, "wab")
    assert "'wab' is neither an endpoint nor ROLE/INDEX:PORT" in nothing.stderr
    assert "the endpoints are: web" in nothing.stderr


def test_a_forwarded_port_where_nobody_listens_says_so(begin: Begin, namespace: Kube) -> None:
    run = begin({"name": "quiet", "command": python(FOREVER)})
    until_running(run)
    said: list[str] = []
    forward = run.forward(Target("quiet", 0), 7000, None, said.append)
    with socket.create_connection(("127.0.0.1", forward.local), timeout=60) as here:
        assert here.recv(1) == b""
    forward.close()
    eventually(lambda: bool(said))
    assert "the pod refused" in said[0]


def test_files_are_copied_to_and_from_a_replica(begin: Begin, namespace: Kube, folder: Path) -> None:
    run = begin({"name": "worker", "command": python(FOREVER)})
    until_running(run)
    (folder / "maps").mkdir()
    (folder / "maps" / "one.bin").write_bytes(bytes(range(256)) * 5000)
    (folder / "maps" / "two.txt").write_text("zwei")
    there = callsheet(namespace, "cp", run.id, "maps", "worker/0:/tmp/")
    assert "Copied 2 files." in there.stderr, there.stderr
    back = callsheet(namespace, "cp", run.id, "worker/0:/tmp/maps", "back")
    assert "Copied 2 files." in back.stderr, back.stderr
    assert (folder / "back" / "one.bin").read_bytes() == (folder / "maps" / "one.bin").read_bytes()
    missing = callsheet(namespace, "cp", run.id, "worker/0:/no/such", ".")
    assert "the copy failed in the container" in missing.stderr


def test_diff_shows_what_a_run_would_change_and_changes_nothing(
    begin: Begin, namespace: Kube, folder: Path, image: str
) -> None:
    file = folder / "code" / "exp.yaml"
    role = {"name": "worker", "command": python(FOREVER)}
    file.write_text(to_yaml(experiment(role, image=image)))
    before = callsheet(namespace, "diff", "-f", str(file))
    assert before.returncode == 1
    assert "Job/exp-worker would be created" in before.stderr
    assert not namespace.get("jobs")["items"]
    run = callsheet(namespace, "run", "-d", "-f", str(file))
    assert run.returncode == 0, run.stderr
    same = callsheet(namespace, "diff", "-f", str(file))
    assert (same.returncode, same.stdout) == (0, ""), same.stdout
    other = callsheet(namespace, "diff", "-f", str(file), "--set", "roles.worker.env=[{name: A, value: b}]")
    assert other.returncode == 1
    assert "Job/exp-worker would be replaced, which restarts its pods" in other.stderr
    changed = [
        line for line in other.stdout.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")
    ]
    assert "+        - name: A" in changed
    assert not any("apiVersion" in line for line in changed)


def test_events_are_those_of_the_run(begin: Begin, namespace: Kube) -> None:
    run = begin({"name": "worker", "image": "no.such.registry.invalid/x:1", "command": python(FOREVER)})
    next(s for s in run.watch(0.2) if "cannot be pulled" in s.replicas[0].reason)
    eventually(lambda: bool(answer(namespace, "events", run.id, "--warnings")))
    found = answer(namespace, "events", run.id, "--warnings")
    assert {event["type"] for event in found} == {"Warning"}
    assert all(event["object"].startswith("Pod/exp-worker-0") for event in found)


def test_nodes_and_doctor_look_at_the_cluster(namespace: Kube, folder: Path) -> None:
    node = namespace.get("nodes")["items"][0]["metadata"]["name"]
    namespace("label", "node", node, "pool=cpu", "--overwrite")
    try:
        found = answer(namespace, "nodes")
    finally:
        namespace("label", "node", node, "pool-")
    (mine,) = [each for each in found if each["name"] == node]
    assert mine["ready"]
    assert mine["labels"]["pool"] == "cpu"
    done = callsheet(namespace, "doctor")
    assert done.returncode == 0, done.stdout
    assert "ok  rights: complete" in done.stdout
    assert "ok  DNS:" in done.stdout
    assert "  GPUs: " in done.stdout
    done = callsheet(namespace.within("no-such-namespace"), "doctor")
    assert done.returncode == 1
    assert "NO  namespace: there is no namespace 'no-such-namespace'" in done.stdout


def test_attach_takes_a_run_up_again_and_ends_it(begin: Begin, namespace: Kube) -> None:
    run = begin(
        {"name": "learner", "command": python("print('enough')")},
        {"name": "actor", "command": python(FOREVER)},
        lifecycle={"success": ["learner"]},
    )
    done = callsheet(namespace, "attach", run.id)
    assert done.returncode == 0, done.stderr
    assert "exp Succeeded" in done.stderr
    again = callsheet(namespace, "attach", run.id)
    assert (again.returncode, "exp Succeeded" in again.stderr) == (0, True)


def test_a_detached_run_says_what_will_not_happen_by_itself(
    namespace: Kube, folder: Path, image: str
) -> None:
    file = folder / "code" / "exp.yaml"
    file.write_text(to_yaml(experiment({"name": "worker", "command": python(FOREVER)}, image=image)))
    done = callsheet(namespace, "run", "-d", "-f", str(file))
    assert "While nobody is attached, nothing ends the run when" in done.stderr
    assert f"callsheet attach -n {namespace.namespace} {done.stdout.strip()}" in done.stderr


def test_what_kubectl_applied_is_looked_at_and_removed_by_the_same_verbs(
    namespace: Kube, folder: Path, image: str
) -> None:
    file = folder / "code" / "exp.yaml"
    code = "import os; print(len(open(os.environ['CALLSHEET_KEYS'] + '/run.key', 'rb').read()))"
    roles = [{"name": "worker", "command": python(code)}, {"name": "other", "command": python(FOREVER)}]
    file.write_text(to_yaml(experiment(*roles, image=image)))
    made = callsheet(namespace, "keys", "exp")
    assert "Created Secret exp-keys." in made.stderr
    again = callsheet(namespace, "keys", "exp")
    assert "Kept the existing Secret exp-keys." in again.stderr
    manifests = callsheet(namespace, "render", "-f", str(file))
    namespace("create", "-f", "-", stdin=manifests.stdout)
    eventually(lambda: callsheet(namespace, "logs", "exp", "worker").stdout == "32\n")
    (run,) = answer(namespace, "ps")
    assert run["run"].startswith("r")
    everywhere = answer(namespace.within("default"), "ps", "-A")
    assert (run["run"], namespace.namespace) in {(each["run"], each["namespace"]) for each in everywhere}
    stopped = callsheet(namespace, "stop", "--now", "exp")
    assert stopped.stdout == f"{run['run']}: Stopped\n", stopped.stderr
    removed = callsheet(namespace, "delete", "-y", "exp")
    assert removed.returncode == 0, removed.stderr
    kinds = "configmaps,secrets,services,jobs,pods,networkpolicies"
    eventually(lambda: not namespace.get(kinds, "-l", "callsheet.dev/experiment=exp")["items"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["ps", "--context", "moon"], "the kubeconfig has no context 'moon'"),
        (["status", "nothing"], "there is no run 'nothing' in the namespace"),
    ],
)
def test_a_wrong_name_is_told_in_a_sentence(
    namespace: Kube, folder: Path, words: list[str], sentence: str
) -> None:
    done = callsheet(namespace, *words)
    assert done.returncode == 2
    assert sentence in done.stderr


def test_a_dry_run_asks_the_cluster_and_makes_nothing(namespace: Kube, folder: Path, image: str) -> None:
    example = Path(__file__).parents[2] / "examples" / "tzmq" / "experiment.yaml"
    done = callsheet(namespace, "run", "-f", str(example), "--set", f"image={image}", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "Job/tzmq-learner would be created" in done.stderr
    assert not namespace.get("jobs")["items"]
