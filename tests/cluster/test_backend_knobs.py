"""What a file can say about its pods, on a real cluster: what they may do, when they wait, which stay at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import FOREVER, begin, cloud, folder, lines, python, replica, until, until_running
from kubectl import Kube, eventually

from callsheet.backends.base import Target
from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.errors import UserError

__all__ = ["begin", "cloud", "folder"]

Begin = Callable[..., KubernetesRun]
GOLDEN = Path(__file__).parents[1] / "golden" / "kubernetes" / "everything.golden.yaml"
KINDS = "jobs,statefulsets,services,networkpolicies,secrets,configmaps,pods"

LOOK = """
import json, os

def writable(folder):
    try:
        open(os.path.join(folder, "x"), "w").close()
    except OSError:
        return False
    return True

state = dict(line.rstrip().split(":\\t") for line in open("/proc/self/status") if ":\\t" in line)
mounts = {line.split()[1]: line.split()[2] for line in open("/proc/mounts")}
print(json.dumps({
    "user": [os.getuid(), os.getgid()], "groups": os.getgroups(), "home": os.environ["HOME"],
    "writable": [f for f in ("/", "/tmp", "/dev/shm") if writable(f)], "shm": mounts["/dev/shm"],
    "capabilities": int(state["CapEff"], 16), "no new privileges": state["NoNewPrivs"], "seccomp": state["Seccomp"],
    "token": os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"),
    "env": {k: v for k, v in os.environ.items() if k.startswith("MINE")},
}))
"""


def look(run: KubernetesRun) -> dict[str, Any]:
    assert run.wait(180).phase == "Succeeded"
    (line,) = lines(run, "worker/0")
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_file_that_says_everything_is_accepted(namespace: Kube) -> None:
    text = GOLDEN.read_text().replace("namespace: rl\n", f"namespace: {namespace.namespace}\n")
    made = namespace("create", "--dry-run=server", "-f", "-", stdin=text)
    assert len(made.splitlines()) == text.count("\nkind:")


def test_pods_may_do_little_unless_the_file_says_more(begin: Begin, namespace: Kube) -> None:
    open_to_all = {
        "securityContext": {
            "readOnlyRootFilesystem": False,
            "runAsUser": 0,
            "runAsNonRoot": False,
            "capabilities": {"add": ["CHOWN"]},
        },
        "podPatch": {"automountServiceAccountToken": True},
    }
    more = look(begin({"name": "worker", "command": python(LOOK), **open_to_all}))
    assert (more["user"][0], more["token"]) == (0, True)
    assert more["writable"] == ["/", "/tmp", "/dev/shm"]
    assert more["capabilities"] != 0

    namespace("label", "namespace", namespace.namespace, "pod-security.kubernetes.io/enforce=restricted")
    namespace("create", "secret", "generic", "cloud", "--from-literal=MINE_KEY=k", "--from-literal=token=t")
    namespace("create", "configmap", "seeds", "--from-literal=first=7")
    env = [
        {"name": "MINE_TOKEN", "valueFrom": {"secretKeyRef": {"name": "cloud", "key": "token"}}},
        {"name": "MINE_SEED", "valueFrom": {"configMapKeyRef": {"name": "seeds", "key": "first"}}},
        {"name": "MINE_PLACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    ]
    all_of = [{"secretRef": {"name": "cloud"}}]
    assert look(begin({"name": "worker", "command": python(LOOK), "env": env, "envFrom": all_of})) == {
        "user": [1000, 1000],
        "groups": [1000],
        "home": "/tmp",
        "writable": ["/tmp", "/dev/shm"],
        "shm": "tmpfs",
        "capabilities": 0,
        "no new privileges": "1",
        "seccomp": "2",
        "token": False,
        "env": {"MINE_TOKEN": "t", "MINE_SEED": "7", "MINE_PLACE": namespace.namespace, "MINE_KEY": "k"},
    }


def test_a_suspended_run_has_no_pods_until_the_file_says_go(begin: Begin, namespace: Kube) -> None:
    roles = [
        {"name": "worker", "command": python(FOREVER)},
        {"name": "server", "command": python(FOREVER), "restart": {"policy": "Always"}},
    ]
    run = begin(*roles, lifecycle={"suspend": True})
    assert (run.status().phase, run.notes) == ("Suspended", [])
    assert not namespace.get("pods")["items"]
    again = begin(*roles, lifecycle={"suspend": False})
    assert again.id == run.id
    assert again.notes[0] == f"exp runs already, as {run.id}."
    assert "Job/exp-worker was changed." in again.notes
    until_running(again)
    assert begin(*roles, lifecycle={"suspend": False}).notes == [
        f"exp runs already, as {run.id}: the file changes nothing."
    ]
    replaced = begin(
        roles[0] | {"env": [{"name": "A", "value": "1"}]}, roles[1], lifecycle={"suspend": False}
    )
    assert "Job/exp-worker was replaced, which restarts its pods." in replaced.notes


def test_names_of_another_experiment_are_not_touched_and_the_book_owns_all(
    begin: Begin, namespace: Kube
) -> None:
    """`exp-a` with a role `b`, and `exp` with a role `a-b`, want the same Job."""
    wait = {"suspend": True}
    begin({"name": "b", "command": python(FOREVER)}, name="exp-a", lifecycle=wait)
    with pytest.raises(
        UserError, match="already has Job exp-a-b, which does not belong to the experiment 'exp'"
    ):
        begin({"name": "a-b", "command": python(FOREVER)}, lifecycle=wait)
    assert not namespace.get(KINDS, "-l", "callsheet.dev/experiment=exp")["items"]
    assert len(namespace.get(KINDS, "-l", "callsheet.dev/experiment=exp-a")["items"]) >= 5
    namespace("delete", "configmap", "exp-a")
    eventually(lambda: not namespace.get(KINDS, "-l", "callsheet.dev/experiment=exp-a")["items"])


def test_which_pods_stay_at_the_end_is_the_files_to_say(begin: Begin, namespace: Kube) -> None:
    roles = [
        {"name": "learner", "command": python("print('enough')")},
        {"name": "actor", "command": python(FOREVER)},
    ]
    runs = {
        clean: begin(
            *roles,
            name=clean.lower(),
            lifecycle={"success": ["learner"], "cleanPods": clean},
            detach=False,
        )
        for clean in ("All", "Running", "None")
    }
    for run in runs.values():
        assert run.wait(180).phase == "Succeeded"

    def phases(name: str) -> list[str]:
        pods = namespace.get("pods", "-l", f"callsheet.dev/experiment={name}")["items"]
        return sorted(pod["status"]["phase"] for pod in pods)

    eventually(lambda: phases("none") == ["Running", "Succeeded"])
    eventually(lambda: phases("running") == ["Succeeded"])
    eventually(lambda: phases("all") == [])


def test_a_program_that_is_killed_comes_back(begin: Begin) -> None:
    code = f"import os\nopen('/tmp/pid', 'w').write(str(os.getpid()))\n{FOREVER}"
    run = begin(
        {"name": "worker", "command": python(code)},
        {"name": "server", "command": python(code), "restart": {"policy": "Always"}},
    )
    until_running(run)
    for role in ("worker", "server"):
        eventually(lambda role=role: lines(run, f"{role}/0") == ["up"])  # after it has written the file
        assert run.exec(Target(role, 0), ["sh", "-c", "kill -9 $(cat /tmp/pid)"]) == 0
    status = until(run, lambda s: s.restarts == 2 and all(r.ready for r in s.replicas), 240)
    assert status.phase == "Running"
    assert replica(status, "worker/0").attempt == 1
    eventually(lambda: lines(run, "server/0") == ["up", "up"])
