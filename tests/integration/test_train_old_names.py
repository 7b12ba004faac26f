"""Checkpoints and experiment files that were written with the old spellings of settings still work."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from test_train import done, results

from callsheet.rl import load_policy

OLD = Path(__file__).parent.parent / "data" / "old-names"


def test_a_training_resumes_from_a_checkpoint_with_old_names(folder: Path) -> None:
    ended = done(
        *("train", "impala", "--resume", str(OLD / "impala"), "--name", "new"),
        *("--stop-steps", "300", "--evaluate-every", "0", "--set", "learning_rate=0.001"),
    )
    assert "step-000000000200: 200 steps" in ended.stdout
    settings = json.loads((results("new") / "result.json").read_text())["training"]["settings"]
    assert settings["normalize"] is True
    assert settings["normalize_advantages"] is True
    assert settings["network"]["dueling"] is False
    assert not {"normalise", "normalise_advantages"} & set(settings)


@pytest.mark.long
def test_an_experiment_file_with_old_names_runs(folder: Path) -> None:
    """Its learner reads `duelling`, its replay is started with `--kind prioritised`."""
    done("run", "-f", str(OLD / "dqn.yaml"))
    settings = json.loads((results("old-names-dqn") / "result.json").read_text())["training"]["settings"]
    assert settings["network"]["dueling"] is True


def test_a_policy_is_loaded_from_a_checkpoint_with_old_names() -> None:
    assert load_policy(str(OLD / "impala"))(np.zeros(4)) in (0, 1)
