"""Numbers of a run in the cluster come from its pods' metrics ports, which only the run's own pods can reach."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from cluster_runs import FOREVER, answer, begin, callsheet, cloud, folder, python, until_running
from kubectl import Kube, eventually

from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.metrics.reader import shown_by_role

__all__ = ["begin", "cloud", "folder"]

Begin = Callable[..., KubernetesRun]
PROGRAM = Path(__file__).parents[1] / "programs" / "exports.py"


def test_status_and_metrics_ask_the_pods_that_serve_them(begin: Begin, namespace: Kube, folder: Path) -> None:
    shutil.copy(PROGRAM, folder / "code")
    run = begin(
        {"name": "learner", "command": ["python3", "exports.py", "idle"], "binds": [{"name": "metrics"}]},
        {
            "name": "actor",
            "replicas": 2,
            "command": ["python3", "exports.py", "idle"],
            "binds": [{"name": "actor-metrics", "port": 9100}],
        },
        {"name": "quiet", "command": python(FOREVER)},
    )
    until_running(run)
    wanted = {"learner": ["steps", "spread", "level"], "actor": ["steps", "spread", "level"]}

    def shown() -> dict[str, list[str]]:
        found = shown_by_role(run.metrics(), ended=False)
        return {role: [number.name for number in numbers] for role, numbers in found.items()}

    eventually(lambda: shown() == wanted)
    everyone = ["actor/0", "actor/1", "learner/0"]
    eventually(lambda: sorted(process.name for process in run.metrics()) == everyone)
    status = callsheet(namespace, "status", run.id)
    actor = next(line for line in status.stdout.splitlines() if line.startswith("actor "))
    assert "steps" in actor, status.stdout
    assert "/s" in actor
    (process,) = answer(namespace, "metrics", run.id, "actor/1")
    assert (process["role"], process["index"]) == ("actor", 1)
    assert process["metrics"]["steps"] > 0


def test_a_run_that_serves_no_metrics_asks_the_cluster_for_none(begin: Begin, namespace: Kube) -> None:
    run = begin({"name": "quiet", "command": python(FOREVER)})
    until_running(run)
    assert run.metrics() == []
    printed = callsheet(namespace, "metrics", run.id)
    assert printed.returncode == 0
    assert "none of these processes exports any" in printed.stderr


def test_a_pod_that_does_not_listen_yet_shows_nothing_and_breaks_nothing(
    begin: Begin, namespace: Kube
) -> None:
    run = begin(
        {
            "name": "slow",
            "command": python(FOREVER),
            "binds": [{"name": "metrics"}],
            "readinessProbe": {"exec": {"command": ["true"]}},
        }
    )
    until_running(run)
    assert run.metrics() == []
    assert "METRICS" not in callsheet(namespace, "status", run.id).stdout
