"""`callsheet train --tensorboard` serves the curves while they grow."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from local_runs import eventually

from callsheet.backends.base import backend
from callsheet.cli.main import call
from callsheet.rl.roles.tensorboard import EventFileCopies
from callsheet.store import open_store

TRAIN = ["train", "ppo", "--env", "CartPole-v1", "--actors", "1", "--evaluate-every", "0", "--tensorboard"]


def asked(address: str, path: str) -> Any:
    """What TensorBoard answers; nothing while it is not there yet."""
    try:
        with urllib.request.urlopen(f"http://{address}/data/{path}", timeout=10) as answer:
            return json.load(answer)
    except OSError:
        return None


def test_the_curves_of_a_training_are_served(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*TRAIN, "-d", "-o", "name"]) == 0
    run = backend("local").find(capsys.readouterr().out.strip())
    try:
        address = run.status().exposed["tensorboard"]
        tags = eventually(lambda: (asked(address, "plugin/scalars/tags") or {}).get("learner-0"), within=60)
        tag = next(iter(tags))
        assert asked(address, f"plugin/scalars/scalars?run=learner-0&tag={tag}")
    finally:
        run.stop()


def test_copies_of_files_in_a_cloud_grow_with_them(folder: Path) -> None:
    store = open_store("cloud")
    copies = EventFileCopies(store.sub("tensorboard"), Path("copies"))
    copies.update()
    store.put("tensorboard/learner-0/events.1", b"abc")
    store.put("metrics/learner/0/x.jsonl", b"{}")
    copies.update()
    copy = Path("copies/learner-0/events.1")
    assert copy.read_bytes() == b"abc"
    with copy.open("rb") as reader:
        reader.read()
        store.put("tensorboard/learner-0/events.1", b"abcdef")
        copies.update()
        assert reader.read() == b"def", "who reads it goes on where it was"
    assert [path.name for path in Path("copies").rglob("*.*")] == ["events.1"]


def test_copies_of_killed_servers_do_not_pile_up_and_those_of_living_ones_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from callsheet.rl.roles.tensorboard import copies_folder
with copies_folder() as folder:
    Path(folder, "events").write_bytes(b"x" * 1000)
    print(folder, flush=True)
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdin.readline()
"""
    monkeypatch.setenv("TMPDIR", str(folder))
    program = [sys.executable, "-c", code]
    with subprocess.Popen([*program, "live"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as living:
        assert living.stdout
        own = Path(living.stdout.readline().decode().strip())
        for _ in range(4):
            done = subprocess.run([*program, "kill"], stdout=subprocess.PIPE, check=False)
            assert done.returncode == -signal.SIGKILL
            assert {path.name for path in folder.glob("callsheet-*")} == {
                own.name,
                Path(done.stdout.decode().strip()).name,
            }
        assert (own / "events").read_bytes() == b"x" * 1000
        living.communicate(b"\n", timeout=60)
    assert not own.exists()
