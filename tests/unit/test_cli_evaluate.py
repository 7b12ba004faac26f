"""`callsheet evaluate` on an environment that does not end by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored_training import keep

from callsheet.cli.main import call


def test_episodes_that_take_too_long_are_cut_short_and_the_answer_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wish = ["evaluate", str(keep(tmp_path, "CartPole-v1")), "--episodes", "3"]
    assert call([*wish, "--longest", "5"]) == 0
    assert "in 3 episodes of 5 steps on average; 3 cut short after 5 steps" in capsys.readouterr().out
    assert call([*wish, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["cut"] == 0, "five hundred steps are far below the limit"
