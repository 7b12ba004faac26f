"""With a storage in the cloud, lines and events arrive there, and its absence costs nothing but them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from local_runs import program
from s3_server import BUCKET

from callsheet.store import open_store

CONTRACT = {
    "CALLSHEET_ROLE": "learner",
    "CALLSHEET_CONTAINER": "learner",
    "CALLSHEET_INDEX": "0",
    "INTERVAL": "0.05",
}


def start(storage: str, *words: str) -> subprocess.Popen[str]:
    env = os.environ | CONTRACT | {"CALLSHEET_STORAGE": storage}
    command = program("exports.py", "idle", *words)
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("counting")
    return process


@pytest.mark.exclusive
@pytest.mark.usefixtures("s3")
def test_a_process_that_is_told_to_end_leaves_its_metrics_in_the_store(folder: Path) -> None:
    storage = f"s3://{BUCKET}/{folder.name}"
    ends = []
    for _ in range(2):  # the second one is a restart, and replaces nothing
        process = start(storage, "puts")
        process.terminate()
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (-signal.SIGTERM, "")
    store = open_store(storage)
    keys = [entry.key for entry in store.list("")]
    for key in keys:
        if key.startswith("metrics/learner/0/learner.") and key.endswith(".jsonl"):
            ends.append([json.loads(line) for line in store.get(key).splitlines()][-1])
    assert [end["last"] for end in ends] == [True, True]
    assert all(end["metrics"]["steps"] > 0 for end in ends)
    assert len([key for key in keys if key.startswith("tensorboard/learner-0/events.out.tfevents.")]) == 2


def test_a_store_that_is_not_there_delays_the_end_by_seconds_and_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("ACCESS_KEY_ID", "x"),
        ("SECRET_ACCESS_KEY", "y"),
        ("ENDPOINT_URL", "http://127.0.0.1:9"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    process = start(f"s3://{BUCKET}/x", "puts")
    began = time.monotonic()
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGTERM
    assert time.monotonic() - began < 15
    assert errors.count("metrics are lost (upload): the last upload took longer than 5 s") == 1


def test_without_somebody_who_puts_it_is_said_once(folder: Path) -> None:
    env = os.environ | CONTRACT | {"CALLSHEET_STORAGE": f"s3://{BUCKET}/x", "SECONDS": "0.2"}
    done = subprocess.run(
        program("exports.py"), env=env, capture_output=True, text=True, timeout=30, check=True
    )
    assert f"metrics are lost (lines): there is no sink to store them in s3://{BUCKET}/x" in done.stderr
