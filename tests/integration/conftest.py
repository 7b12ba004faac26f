"""Every test has a folder and a registry of runs of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from s3_server import own_s3, s3, shared_s3

from callsheet import contract

__all__ = ["own_s3", "s3", "shared_s3"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the test; runs go to `runs/` in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in [name for name in os.environ if name.startswith(contract.PREFIX)]:
        monkeypatch.delenv(name)
    return tmp_path
