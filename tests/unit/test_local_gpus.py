"""Which GPUs this machine has: what the user chose, else what the driver lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from callsheet.backends.local.preflight import machine_gpus


def driver(folder: Path, *lines: str) -> Path:
    """An `nvidia-smi` that does this, and leaves a mark whenever it is asked."""
    marks = folder / "asked"
    tool = folder / "nvidia-smi"
    tool.write_text("\n".join(["#!/bin/sh", f"echo >>{marks}", *lines]))
    tool.chmod(0o755)
    return marks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_the_driver_is_asked_once(folder: Path) -> None:
    marks = driver(folder, "echo 0", "echo 1")
    assert [machine_gpus(), machine_gpus()] == [["0", "1"], ["0", "1"]]
    assert len(marks.read_text()) == 1


def test_a_driver_that_failed_is_asked_again(folder: Path) -> None:
    driver(folder, "exit 9")
    assert machine_gpus() == []
    driver(folder, "echo 0")
    assert machine_gpus() == ["0"]


def test_whoever_chose_gpus_is_believed_and_no_driver_means_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine_gpus() == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert machine_gpus() == ["3", "5"]
