"""The racing example on this machine: secrets, simulators beside workers, checkpoints that a new learner takes up."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from local_runs import eventually, kill, lines, running, until

from callsheet.plan.load import load

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "learn-to-race"


@pytest.fixture
def code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example's folder with the two Secrets that its page asks for."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    copy = folder / "code"
    shutil.copytree(EXAMPLE, copy)
    for name in ("aws-key", "aws-secret-key"):
        secret = copy / ".callsheet" / "secrets" / name
        secret.mkdir(parents=True)
        (secret / "access-key").write_text(f"{name}-value\n")
    return copy


def test_workers_race_in_their_own_simulators_and_the_learner_learns(code: Path) -> None:
    (loaded,) = load([str(code / "experiment.yaml")], sets=["roles.learner.resources={}"])
    with running(loaded.experiment, code) as run:
        status = run.wait(60)
        assert status.phase == "Succeeded", status
        rewards = [
            json.loads(line)["reward"] for line in (run.folder / "rewards.jsonl").read_text().splitlines()
        ]
        assert len(rewards) == 60
        assert sum(rewards[-30:]) / 30 > 50, "it did learn: a car that does not steer gets about 12"
        printed = lines(run, "learner")
        assert "AWS_SECRET_ACCESS_KEY is set" in printed
        assert not any("aws-key-value" in line for line in printed)


def test_a_killed_learner_goes_on_from_its_checkpoint(code: Path) -> None:
    (loaded,) = load([str(code / "experiment.yaml")], sets=["roles.learner.resources={}"])
    spec = loaded.experiment.model_dump(exclude_unset=True)
    spec["spec"]["roles"][0]["command"][-1] = "100000"
    experiment = type(loaded.experiment).model_validate(spec)
    with running(experiment, code) as run:
        eventually(lambda: (run.folder / "checkpoints" / "policy-000030.json").exists(), 30)
        kill(run.status(), "learner/0")
        until(run, lambda s: any("resumed from policy-" in line for line in lines(run, "learner")), 30)
        seen = len(list((run.folder / "checkpoints").iterdir()))
        eventually(lambda: len(list((run.folder / "checkpoints").iterdir())) > seen + 2, 30)
