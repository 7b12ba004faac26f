"""Finished runs are removed with all that belongs to them; running ones are not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from localrun import backend, eventually, experiment, program, python, running, until_running

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
