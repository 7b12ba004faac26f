"""A replay server as a role of an experiment, and its options."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from free_ports import free_address
from local_runs import PYTHON, experiment, program, running
from replay_servers import client, reason

from callsheet.runtime.replay import __main__ as role

MODULE = [PYTHON, "-m", "callsheet.runtime.replay"]


def environment(folder: Path) -> dict[str, str]:
    return {
        "CALLSHEET_EXPERIMENT": "by-hand",
        "CALLSHEET_RUN": "by-hand",
        "CALLSHEET_ROLE": "replay",
        "CALLSHEET_INDEX": "0",
        "CALLSHEET_ENCRYPTION": "off",
        "CALLSHEET_STORAGE": folder.as_uri(),
    }


@contextmanager
def process(folder: Path, address: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The module as a process of its own."""
    endpoint = options[options.index("--endpoint") + 1] if "--endpoint" in options else "replay"
    env = {**os.environ, **environment(folder), f"CALLSHEET_{endpoint.upper()}_BIND": address}
    with subprocess.Popen([*MODULE, *options], env=env, stderr=subprocess.PIPE, text=True) as one:
        try:
            yield one
        finally:
            one.kill()


@pytest.fixture
def address() -> str:
    return free_address()


def test_an_experiment_with_a_replay_of_two_shards_learns_and_leaves_a_snapshot(folder: Path) -> None:
    exp = experiment(
        {
            "name": "replay",
            "replicas": 2,
            "command": [*MODULE, "--kind", "prioritized", "--items", "5000", "--min-size", "20"],
            "binds": [{"name": "replay"}],
        },
        {"name": "actor", "replicas": 2, "command": program("replay_actor.py"), "connects": ["replay"]},
        {"name": "learner", "command": program("replay_learner.py"), "connects": ["replay"]},
        lifecycle={"success": ["learner"]},
    )
    with running(exp, folder) as run:
        assert run.wait(60).phase == "Succeeded"
    stored = {path.parent.parent.parent.name for path in folder.rglob("checkpoints/*/replay/manifests/*")}
    assert stored == {"replay-0", "replay-1"}


def test_sigterm_stores_a_last_snapshot_and_ends_with_143(tmp_path: Path, address: str) -> None:
    options = ("--kind", "fifo", "--table", "queue", "--items", "100", "--snapshot-every", "1000")
    with process(tmp_path, address, *options) as first:
        with client("network", address, table="queue", role="actor") as actor:
            actor.insert_many({"x": np.arange(30)}, timeout=30)
            actor.flush(30)
        first.send_signal(signal.SIGTERM)
        assert first.wait(20) == 143
    with (
        process(tmp_path, address, *options) as second,
        client("network", address, table="queue", batch=30) as replay,
    ):
        assert replay.sample(30).arrays["x"].tolist() == list(range(30))
        second.send_signal(signal.SIGTERM)
        assert second.wait(20) == 143


def test_every_option_of_the_table_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    class Server:
        def __init__(self, context: object, endpoint: str, table: object, **more: object) -> None:
            seen.extend([endpoint, table, more])

        def __enter__(self) -> Server:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def serve(self) -> None:
            pass

    monkeypatch.setattr(role, "ReplayServer", Server)
    for name, value in environment(Path("/nowhere")).items():
        if name != "CALLSHEET_STORAGE":
            monkeypatch.setenv(name, value)
    told = "--endpoint store --table t --kind prioritized --items 7 --bytes 2Ki --alpha 0.5 --min-size 3"
    told += " --samples-per-insert 4 --tolerance 9 --seed 1 --window 5 --snapshot-every 6 --keep 8"
    assert role.main(told.split()) == 0
    endpoint, table, more = seen
    assert endpoint == "store"
    assert table == role.Table(
        name="t",
        kind="prioritized",
        items=7,
        bytes=2048,
        alpha=0.5,
        min_size=3,
        samples_per_insert=4.0,
        tolerance=9.0,
        seed=1,
    )
    assert more == {"window": 5, "snapshot_every": 6.0, "keep": 8}
    seen.clear()
    assert role.main(["--snapshot-every", "0"]) == 0
    assert seen[2] == {"window": 8, "snapshot_every": None, "keep": 2}


def test_every_option_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        role.main(["--help"])
    assert "endpoint to bind" in capsys.readouterr().out
    for action in role._parser()._actions:
        assert action.help


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--bytes", "many"], "'many' is not a number of bytes; write 500M or 20Gi"),
        (["--kind", "lifo"], "invalid choice: 'lifo'"),
    ],
)
def test_a_wrong_option_is_told(options: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        role.main(options)
    assert text in capsys.readouterr().err


def test_without_storage_it_refuses_to_start_and_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environment(Path("/nowhere")).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CALLSHEET_STORAGE")
    monkeypatch.setenv("CALLSHEET_REPLAY_BIND", "127.0.0.1:0")
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        assert role.main([]) == 2
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])
    assert "has no storage for its snapshots" in capsys.readouterr().err


def test_the_limits_of_the_command_line_reach_the_clients(tmp_path: Path, address: str) -> None:
    options = (
        "--items",
        "1000",
        "--samples-per-insert",
        "2",
        "--min-size",
        "10",
        "--tolerance",
        "20",
        "--snapshot-every",
        "0",
    )
    with (
        process(tmp_path, address, *options),
        client("network", address, role="actor", window=1) as actor,
    ):
        why = reason(lambda timeout: actor.insert({"x": np.zeros(10_000)}, timeout=timeout))
        assert "0 samples of 20 inserts, and 2 for each insert are wanted" in why
    assert not (tmp_path / "checkpoints").exists()


def test_the_module_is_there_for_any_interpreter() -> None:
    shown = subprocess.run([*MODULE, "--help"], capture_output=True, text=True, check=True)
    assert "--snapshot-every" in shown.stdout
