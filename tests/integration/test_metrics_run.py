"""Metrics in a real run: each role on its own address, files in the results, numbers in the verbs."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from local_runs import eventually, experiment, program, running, until_all_spoke

from callsheet.backends.local.client import LocalRun
from callsheet.cli.main import call
from callsheet.metrics.reader import shown_by_role


def role(name: str, *words: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "command": program("exports.py", "idle", *words), **more}


def numbers(run: LocalRun) -> dict[str, list[str]]:
    return {
        role: [item.name for item in found]
        for role, found in shown_by_role(run.metrics(), ended=False).items()
    }


def test_roles_serve_and_write_metrics_and_the_verbs_show_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exp = experiment(
        role("learner", binds=[{"name": "metrics", "port": 9100}]),
        role("actor", replicas=2, binds=[{"name": "actor-metrics", "port": 9100}]),
        role("evaluator"),
    )
    with running(exp, folder) as run:
        until_all_spoke(run)
        wanted = {name: ["steps", "spread", "level"] for name in ("actor", "evaluator", "learner")}
        eventually(lambda: numbers(run) == wanted)
        hosts = {replica.name: replica.host for replica in run.status().replicas}
        assert len(set(hosts.values())) == 4
        for name in ("learner/0", "actor/0", "actor/1"):
            with urllib.request.urlopen(f"http://{hosts[name]}:9100/metrics", timeout=10) as answer:
                text = answer.read().decode()
            owner, index = name.split("/")
            assert f'role="{owner}",index="{index}"' in text
        assert call(["status", run.id]) == 0
        actor = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("actor "))
        assert "steps" in actor
        assert "/s" in actor
        assert call(["metrics", run.id, "actor/1", "-o", "json"]) == 0
        (process,) = json.loads(capsys.readouterr().out)
        assert process["metrics"]["steps"] > 0
        run.stop()
        run.wait(20)
    assert sorted(str(p.relative_to(run.folder)) for p in run.folder.glob("metrics/**/*.jsonl")) == [
        "metrics/actor/0/actor.jsonl",
        "metrics/actor/1/actor.jsonl",
        "metrics/evaluator/0/evaluator.jsonl",
        "metrics/learner/0/learner.jsonl",
    ]
    assert {path.name for path in run.folder.glob("tensorboard/*")} == {
        "actor-0",
        "actor-1",
        "evaluator-0",
        "learner-0",
    }
    assert all(process.last for process in run.metrics()), "SIGTERM wrote the last lines"
    assert call(["status", run.id]) == 0
    assert "steps" in capsys.readouterr().out, "a run that has ended shows its last numbers"


def test_where_nothing_is_written_here_the_numbers_come_from_the_ports(folder: Path) -> None:
    writes_elsewhere = ["env", "-u", "CALLSHEET_STORAGE", *program("exports.py", "idle")]
    exp = experiment({"name": "actor", "command": writes_elsewhere, "binds": [{"name": "metrics"}]})
    with running(exp, folder) as run:
        until_all_spoke(run)
        eventually(lambda: numbers(run) == {"actor": ["steps", "spread", "level"]})
        assert not (run.folder / "metrics").exists()


def test_a_run_without_metrics_shows_none_and_a_replica_that_joins_appears(folder: Path) -> None:
    quiet = {"name": "quiet", "command": program("patient.py")}
    exp = experiment(quiet, role("actor", replicas=0, scale={"min": 0, "max": 2}))
    with running(exp, folder) as run:
        until_all_spoke(run)
        assert run.metrics() == []
        run.scale({"actor": 1})
        eventually(lambda: [process.name for process in run.metrics()] == ["actor/0"])
