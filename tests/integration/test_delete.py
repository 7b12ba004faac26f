"""Finished runs are removed with all that belongs to them; running ones are not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from local_runs import (
    backend,
    eventually,
    experiment,
    program,
    python,
    running,
    until_all_spoke,
    until_running,
)

from callsheet.backends.local.client import LocalRun
from callsheet.cli.main import call
from callsheet.errors import UserError


def test_a_run_can_be_deleted_at_the_very_moment_it_has_ended(folder: Path) -> None:
    exp = experiment({"name": "actor", "replicas": 3, "command": python("print('hi')")})
    for _ in range(5):
        run = backend("local").start(exp, base=folder, detach=True)
        run.wait(20)
        run.delete()
        assert backend("local").runs() == []
    assert not (folder / "runs" / "exp").exists(), "no empty folder is left either"


def test_a_running_run_is_not_deleted(folder: Path) -> None:
    with running(experiment({"name": "actor", "command": program("patient.py")}), folder) as run:
        until_running(run)
        with pytest.raises(UserError, match="has not ended"):
            run.delete()
        assert run.folder.exists()


def test_a_folder_that_was_removed_by_hand_is_forgotten(folder: Path) -> None:
    with running(experiment({"name": "actor", "command": python("pass")}), folder) as run:
        run.wait(20)
        eventually(lambda: not os.path.exists(run.layout.socket))
    shutil.rmtree(folder / "runs")
    assert backend("local").runs() == []


def test_a_run_that_is_still_ending_is_waited_for_and_that_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stubborn = {
        "name": "actor",
        "command": program("patient.py", "--stubborn"),
        "terminationGracePeriod": "2s",
    }
    run = backend("local").start(experiment(stubborn), base=folder, detach=True)
    assert isinstance(run, LocalRun)
    until_all_spoke(run)
    run.stop()
    assert call(["delete", run.id, "--yes"]) == 0
    assert f"Waiting for {run.id} to end" in capsys.readouterr().err
    assert not run.folder.exists()
