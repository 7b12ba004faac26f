"""An experiment in the cluster from its start to its end: the same words as on a laptop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import (
    FOREVER,
    answer,
    begin,
    callsheet,
    cloud,
    experiment,
    folder,
    lines,
    python,
    replica,
    until,
    until_running,
)
from kubectl import Kube, eventually

from callsheet.backends.base import LogQuery, Target
from callsheet.backends.kubernetes import launch
from callsheet.backends.kubernetes.backend import KubernetesBackend
from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.errors import UserError

__all__ = ["begin", "cloud", "folder"]

Begin = Callable[..., KubernetesRun]
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_first_example_runs_in_the_cluster_unchanged(namespace: Kube, folder: Path, image: str) -> None:
    done = callsheet(
        namespace,
        "run",
        "-f",
        str(EXAMPLES / "tzmq" / "experiment.yaml"),
        "--set",
        f"image={image}",
        "--set",
        "roles.learner.args=[--steps, '500']",
    )
    assert done.returncode == 0, done.stderr
    assert "collected 500/500 trajectories" in done.stdout
    assert "tzmq Succeeded after" in done.stderr
    assert "every replica of learner ended with 0" in done.stderr


def test_the_rest_is_stopped_when_the_success_roles_have_ended(begin: Begin, namespace: Kube) -> None:
    run = begin(
        {"name": "learner", "command": python("print('enough')")},
        {"name": "actor", "replicas": 2, "command": python(FOREVER)},
        {"name": "server", "command": python(FOREVER), "restart": {"policy": "Always"}},
        lifecycle={"success": ["learner"]},
        detach=False,
    )
    status = run.wait(180)
    assert (status.phase, status.exit_code) == ("Succeeded", 0)
    assert {r.name: r.phase for r in status.replicas} == {
        "learner/0": "Succeeded",
        "actor/0": "Stopped",
        "actor/1": "Stopped",
        "server/0": "Stopped",
    }
    assert not [p for p in namespace.get("pods")["items"] if p["status"]["phase"] == "Running"]


def test_a_replica_that_fails_for_good_fails_the_run_with_its_exit_code(begin: Begin) -> None:
    run = begin(
        {"name": "actor", "command": python("import sys; sys.exit(7)"), "restart": {"policy": "Never"}},
        {"name": "learner", "command": python(FOREVER)},
        detach=False,
    )
    status = run.wait(180)
    assert (status.phase, status.exit_code) == ("Failed", 7)
    assert status.reason == "actor/0 failed: exit code 7; its restart policy is Never"


def test_a_run_without_a_client_ends_by_itself_when_every_role_does(begin: Begin) -> None:
    run = begin({"name": "worker", "replicas": 2, "command": python("print('done')")})
    status = run.wait(180)
    assert (status.phase, status.exit_code) == ("Succeeded", 0)


def test_without_a_client_the_rest_goes_on_and_status_says_so(begin: Begin) -> None:
    run = begin(
        {"name": "learner", "command": python("print('enough')")},
        {"name": "actor", "command": python(FOREVER)},
        lifecycle={"success": ["learner"]},
    )
    status = until(run, lambda status: status.warnings and status.phase == "Running")
    assert "nobody is attached who ends it" in status.warnings[0]
    run.attach()
    assert run.wait(180).phase == "Succeeded"


def test_the_deadline_ends_the_run(begin: Begin) -> None:
    run = begin({"name": "worker", "command": python(FOREVER)}, lifecycle={"deadline": "3s"}, detach=False)
    status = run.wait(180)
    assert (status.phase, status.exit_code) == ("Failed", 124)
    assert "deadline" in status.reason


def test_running_an_unchanged_file_again_changes_nothing(
    begin: Begin, cloud: KubernetesBackend, folder: Path, image: str
) -> None:
    roles = [{"name": "worker", "command": python(FOREVER)}, {"name": "other", "command": python(FOREVER)}]
    run = begin(*roles)
    until_running(run)
    same = experiment(*roles, image=image)
    assert {change.action for change in cloud.changes(same, base=folder / "code")} == {"keep"}
    assert cloud.start(same, base=folder / "code", detach=True).id == run.id
    changed = experiment(roles[0], {**roles[1], "env": [{"name": "A", "value": "1"}]}, image=image)
    replaced = [c.name for c in cloud.changes(changed, base=folder / "code") if c.action == "replace"]
    assert replaced == ["exp-other"]


def test_a_changed_file_replaces_only_what_changed_and_keeps_the_run(begin: Begin, namespace: Kube) -> None:
    roles = [{"name": "worker", "command": python(FOREVER)}, {"name": "other", "command": python(FOREVER)}]
    run = begin(*roles)
    until_running(run)
    before = namespace.nodes_of("callsheet.dev/role=worker")
    again = begin(roles[0], {**roles[1], "env": [{"name": "A", "value": "1"}]})
    assert again.id == run.id
    until_running(again)
    assert namespace.nodes_of("callsheet.dev/role=worker") == before
    with_less = begin(roles[0])
    until_running(with_less)
    assert not namespace.get("jobs", "-l", "callsheet.dev/role=other")["items"]


def test_the_next_run_has_another_id_and_pods_of_its_own(begin: Begin, cloud: KubernetesBackend) -> None:
    role = {"name": "worker", "command": python("import os; print(os.environ['CALLSHEET_RUN'])")}
    first = begin(role)
    first.wait(180)
    second = begin(role)
    second.wait(180)
    assert second.id != first.id
    assert lines(second, "worker/0") == [second.id]
    with pytest.raises(UserError, match=f"the run {second.id} took its place"):
        first.status()
    assert [status.run for status in cloud.runs()] == [second.id]


def test_a_name_that_is_somebody_elses_is_never_touched(begin: Begin, namespace: Kube) -> None:
    namespace("create", "configmap", "exp", "--from-literal=mine=yes")
    with pytest.raises(
        UserError, match="already has ConfigMap exp, which does not belong to the experiment 'exp'"
    ):
        begin({"name": "worker", "command": python(FOREVER)})
    assert namespace.get("configmap", "exp")["data"] == {"mine": "yes"}
    assert not namespace.get("jobs")["items"]


def test_what_the_cluster_refuses_leaves_nothing_behind(begin: Begin, namespace: Kube) -> None:
    with pytest.raises(UserError, match=r"spec\.roles\[worker\]\.") as caught:
        begin({"name": "worker", "command": python(FOREVER), "containerPatch": {"imagePullPolicy": "Often"}})
    assert "Often" in caught.value.message
    eventually(lambda: not namespace.get("services")["items"])


def test_scaling_changes_the_replicas_and_the_address_book(begin: Begin, namespace: Kube) -> None:
    server = {
        "name": "server",
        "replicas": 1,
        "scale": {"min": 1, "max": 3},
        "command": python(FOREVER),
        "binds": [{"name": "data", "port": 7000}],
        "readinessProbe": {"exec": {"command": ["true"]}},
    }
    always = {"name": "policy", "command": python(FOREVER), "restart": {"policy": "Always"}}
    run = begin(
        server,
        {"name": "reader", "connects": ["data"], "command": python(FOREVER)},
        always | {"scale": {"min": 1, "max": 2}},
    )
    until_running(run)
    after = run.scale({"server": 3, "policy": 2})
    assert [role.wanted for role in after.roles] == [3, 1, 2]
    until_running(run)
    read = ["python3", "-c", "import os; print(open(os.environ['CALLSHEET_ADDRESSES']).read())"]
    pod = run.pod(Target("reader", 0))["metadata"]["name"]

    def known() -> int:
        book: dict[str, Any] = json.loads(namespace("exec", pod, "--", *read))
        return len(book["endpoints"]["data"]["addresses"])

    eventually(lambda: known() == 3, 240)
    run.scale({"server": 1})
    until(run, lambda s: len(s.replicas) == 4)
    with pytest.raises(UserError, match="server=9 is out of range"):
        run.scale({"server": 9})


def test_restart_gives_a_replica_a_new_pod_and_counts_no_failure(begin: Begin, namespace: Kube) -> None:
    run = begin({"name": "worker", "replicas": 2, "command": python(FOREVER), "restart": {"limit": 0}})
    until_running(run)
    before = namespace.nodes_of("callsheet.dev/role=worker")
    assert run.restart([Target("worker", 1)]) == ["worker/1"]

    def again(status: Any) -> bool:
        return status.replicas[1].ready and not set(namespace.nodes_of("callsheet.dev/role=worker")) <= set(
            before
        )

    status = until(run, again, 240)
    assert replica(status, "worker/1").restarts == 0


def test_exec_runs_a_command_in_the_container_with_its_environment(begin: Begin, namespace: Kube) -> None:
    run = begin({"name": "worker", "command": python(FOREVER)})
    until_running(run)
    done = callsheet(namespace, "exec", run.id, "worker/0", "--", "sh", "-c", "echo $CALLSHEET_ROLE; exit 3")
    assert (done.stdout, done.returncode) == ("worker\n", 3), done.stderr
    done = callsheet(namespace, "exec", run.id, "worker/0", "--", "no-such")
    assert "the container has no program 'no-such'" in done.stderr


def test_a_run_that_is_stopped_while_somebody_scales_it_stays_stopped(
    begin: Begin, namespace: Kube, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = {"name": "server", "command": python(FOREVER), "restart": {"policy": "Always"}}
    run = begin(server | {"scale": {"min": 1, "max": 3}})
    until_running(run)
    resize = launch.resize

    def late(*arguments: Any) -> None:
        run.stop()
        resize(*arguments)

    monkeypatch.setattr(launch, "resize", late)
    with pytest.raises(UserError, match=f"the run {run.id} has ended"):
        run.scale({"server": 3})
    eventually(lambda: run.status().done)
    assert namespace.get("statefulsets", "exp-server")["spec"]["replicas"] == 0


def test_stop_ends_it_gracefully_and_delete_removes_every_object(begin: Begin, namespace: Kube) -> None:
    run = begin(
        {"name": "worker", "command": python(FOREVER)},
        {"name": "server", "command": python(FOREVER), "restart": {"policy": "Always"}},
    )
    until_running(run)
    with pytest.raises(UserError, match="has not ended"):
        run.delete()
    done = callsheet(namespace, "stop", run.id)
    assert done.stdout == f"{run.id}: Stopped\n", done.stderr
    assert run.status().exit_code == 143
    done = callsheet(namespace, "delete", "-y", run.id)
    assert done.returncode == 0, done.stderr
    kinds = "configmaps,secrets,services,jobs,statefulsets,pods,networkpolicies"
    eventually(lambda: not namespace.get(kinds, "-l", "callsheet.dev/experiment=exp")["items"])


def test_ctrl_c_leaves_and_the_run_goes_on(namespace: Kube, folder: Path, image: str) -> None:
    file = folder / "code" / "exp.yaml"
    from callsheet.spec.dump import to_yaml

    file.write_text(to_yaml(experiment({"name": "worker", "command": python(FOREVER)}, image=image)))
    words = ["run", "-n", namespace.namespace, "-f", str(file)]
    env = os.environ | {"CALLSHEET_ON": "kubernetes"}
    client = subprocess.Popen(
        [sys.executable, "-m", "callsheet", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "worker/0 | up\n"
    client.send_signal(signal.SIGINT)
    _, said = client.communicate(timeout=180)
    assert client.returncode == 130
    assert "exp keeps running as run" in said
    assert f"callsheet attach -n {namespace.namespace}" in said
    assert "callsheet stop" in said
    (status,) = answer(namespace, "ps")
    assert status["phase"] == "Running"


def test_logs_of_pods_that_went_away_are_kept_by_the_attached_client(begin: Begin, folder: Path) -> None:
    run = begin(
        {"name": "learner", "command": python("import time; print('begin'); time.sleep(3)")},
        {"name": "actor", "command": python(FOREVER)},
        lifecycle={"success": ["learner"]},
        detach=False,
    )
    followed = [f"{line.role}: {line.text}" for line in _follow(run)]
    assert sorted(followed) == ["actor: up", "learner: begin"]
    assert lines(run, "actor/0") == ["up"]
    assert (folder / "runs" / "exp" / run.id / "logs" / "actor" / "0" / "actor.log").read_text() == "up\n"


def _follow(run: KubernetesRun) -> list[Any]:
    import threading

    ends = threading.Thread(target=run.wait, args=(180,))
    ends.start()
    found = list(run.logs(LogQuery(follow=True)))
    ends.join()
    return found


def test_logs_can_be_cut_and_searched(begin: Begin) -> None:
    run = begin({"name": "worker", "command": python("for i in range(20): print('step', i)")})
    run.wait(180)
    assert lines(run, "worker/0", tail=2) == ["step 18", "step 19"]
    assert lines(run, "worker", grep="1[01]$") == ["step 10", "step 11"]


def test_a_namespace_with_the_strictest_standard_takes_it(begin: Begin, namespace: Kube) -> None:
    namespace("label", "namespace", namespace.namespace, "pod-security.kubernetes.io/enforce=restricted")
    run = begin({"name": "worker", "command": python("print('safe')")})
    assert run.wait(180).phase == "Succeeded"
