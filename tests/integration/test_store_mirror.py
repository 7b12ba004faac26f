"""A run on this machine whose storage is in a cloud: its folder is copied there, and the run's end waits for that."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from local_runs import (
    eventually,
    experiment,
    is_gone,
    program,
    python,
    running,
    until_all_spoke,
    until_running,
)
from s3_server import BUCKET, SECRET, S3Server

from callsheet.backends.base import backend
from callsheet.backends.local.client import LocalRun
from callsheet.errors import InvalidExperiment, RetryError
from callsheet.spec.experiment import Experiment
from callsheet.store import Store, open_store
from callsheet.store.mirror import Mirror, retry_for


def place() -> str:
    return f"s3://{BUCKET}/{secrets.token_hex(4)}"


def hello(storage: str, **role: object) -> Experiment:
    command = python("import os; print('hello from', os.environ['CALLSHEET_INDEX'], flush=True)")
    return experiment({"name": "actor", "replicas": 3, "command": command, **role}, storage=storage)


def copy_of(run: LocalRun, storage: str) -> Store:
    return open_store(f"{storage}/exp/{run.id}")


def status_there(run: LocalRun, storage: str) -> dict[str, object]:
    copy = copy_of(run, storage)
    found: dict[str, object] = json.loads(copy.get("status.json")) if copy.exists("status.json") else {}
    return found


def visible_files(folder: Path) -> dict[str, bytes]:
    """What people look for in a run's folder."""
    # A status that is being written has another name for a moment.
    files = [
        path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("status.json.")
    ]
    shown = [
        path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    return {str(path.relative_to(folder)): path.read_bytes() for path in shown}


def mirrors(run: LocalRun) -> list[int]:
    answer = subprocess.run(
        ["pgrep", "-f", f"callsheet.store.mirror .*{run.id}"], capture_output=True, text=True
    )
    return [int(pid) for pid in answer.stdout.split()]


def test_a_finished_run_is_there_with_its_status_and_logs_and_no_secret(folder: Path, s3: S3Server) -> None:
    storage = place()
    with running(hello(storage), folder) as run:
        status = run.wait(60)
        assert (status.phase, status.warnings) == ("Succeeded", [])
        copy = copy_of(run, storage)
        there = {entry.key: copy.get(entry.key) for entry in copy.list()}
        assert sorted(there) == [
            "experiment.yaml",
            *(f"logs/actor/{n}/actor.log" for n in range(3)),
            "status.json",
        ]
        assert there["logs/actor/2/actor.log"] == b"hello from 2\n"
        here = visible_files(run.folder)
        assert {key: here[key] for key in here if key != "status.json"} == {
            key: there[key] for key in there if key != "status.json"
        }
        told = json.loads(there["status.json"])
        assert (told["phase"], told["exit_code"], bool(told["finished"])) == ("Succeeded", 0, True)
        eventually(lambda: not mirrors(run))
    all_records = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert SECRET.encode() not in all_records


def test_a_running_run_shows_its_status_there(folder: Path, s3: S3Server) -> None:
    storage = place()
    with running(hello(storage, command=program("patient.py")), folder) as run:
        until_running(run)
        eventually(lambda: status_there(run, storage).get("phase") == "Running", within=30)
        assert run.status().warnings == []
        run.stop()
        assert run.wait(60).phase == "Stopped"
        assert status_there(run, storage)["phase"] == "Stopped"


def test_what_copies_may_be_killed_at_any_time(folder: Path, s3: S3Server) -> None:
    storage = place()
    with running(hello(storage, command=program("patient.py")), folder) as run:
        until_all_spoke(run)
        for _ in range(3):
            (pid,) = eventually(lambda: mirrors(run))
            os.kill(pid, signal.SIGKILL)
            eventually(lambda pid=pid: is_gone(pid))
        run.stop()
        eventually(lambda: run.status().phase != "Running")
        for pid in mirrors(run):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        status = run.wait(60)
        assert (status.phase, status.warnings) == ("Stopped", [])
        assert copy_of(run, storage).get("logs/actor/0/actor.log").endswith(b"stopping\n")
        assert status_there(run, storage)["phase"] == "Stopped"


def test_a_server_that_is_away_for_a_while_gets_all(folder: Path, own_s3: S3Server) -> None:
    storage = place()
    talks = python("import time\nwhile True: print('news', flush=True); time.sleep(0.2)")
    with running(hello(storage, command=talks), folder) as run:
        until_all_spoke(run)
        own_s3.kill()
        warned = eventually(lambda: run.status().warnings, within=60)
        assert "not all is copied" in warned[0]
        assert "cannot be reached" in warned[0]
        assert str(run.folder) in warned[0]
        run.stop()
        waiting = eventually(lambda: [s] if "are being copied to" in (s := run.status()).reason else [])[0]
        assert (waiting.phase, waiting.exit_code) == ("Stopping", None)
        own_s3.start()
        status = run.wait(120)
        assert (status.phase, status.warnings) == ("Stopped", [])
        here = visible_files(run.folder)
        assert copy_of(run, storage).get("logs/actor/0/actor.log") == here["logs/actor/0/actor.log"]


def test_who_does_not_want_to_wait_ends_the_run_at_once(folder: Path, own_s3: S3Server) -> None:
    storage = place()
    with running(hello(storage), folder) as run:
        eventually(lambda: "are being copied" in run.status().reason or run.status().done)
        own_s3.kill()
        run.stop(kill=True)
        assert run.wait(10).phase == "Succeeded"
        assert visible_files(run.folder)["logs/actor/0/actor.log"] == b"hello from 0\n"


def test_what_could_not_be_copied_is_said_and_never_changes_how_the_run_ended(
    folder: Path, own_s3: S3Server
) -> None:
    own_s3.make_bucket("doomed")
    with running(hello("s3://doomed/x", command=program("patient.py")), folder) as run:
        until_all_spoke(run)
        own_s3.remove_bucket("doomed")
        run.stop()
        status = run.wait(60)
        assert (status.phase, status.exit_code) == ("Stopped", 143)
        (warning,) = status.warnings
        assert warning == (
            f"not all is copied to s3://doomed/x/exp/{run.id}: "
            f"there is no s3://doomed at {own_s3.endpoint}; it is in {run.folder}"
        )


def test_a_copy_is_tried_again_only_where_that_may_help(
    folder: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "status.json").write_text("{}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    assert "not allow this" in retry_for(Mirror(folder / "run", open_store(place())).copy_all, 600.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert "cannot be reached" in retry_for(
        Mirror(folder / "run", open_store(place(), patience=0.5)).copy_all, 1.0
    )


def test_after_the_supervisor_was_killed_all_is_there_too(folder: Path, s3: S3Server) -> None:
    storage = place()
    with running(hello(storage, command=program("patient.py")), folder) as run:
        status = until_all_spoke(run)
        os.kill(status.supervisor, signal.SIGKILL)
        assert run.wait(30).exit_code == 70
        eventually(lambda: status_there(run, storage).get("phase") == "Failed", within=60)
        assert copy_of(run, storage).get("logs/actor/0/actor.log").startswith(b"attempt 0")
        eventually(lambda: not mirrors(run), within=60)


@pytest.mark.parametrize(
    ("storage", "env", "said"),
    [
        ("s3://no-such-bucket/x", {}, "there is no s3://no-such-bucket"),
        (f"s3://{BUCKET}/x", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "does not accept the credentials"),
        (f"s3://{BUCKET}/x", {"AWS_ACCESS_KEY_ID": ""}, "no credentials"),
    ],
)
def test_a_storage_that_cannot_be_used_is_a_mistake_before_anything_starts(
    folder: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch, storage: str, env: dict[str, str], said: str
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    local = backend("local")
    for work in (local.check, lambda *a, **k: local.start(*a, detach=True, **k)):
        with pytest.raises(InvalidExperiment) as caught:
            work(hello(storage), base=folder)
        (problem,) = caught.value.problems
        assert problem.path == "spec.storage"
        assert said in problem.message
        assert problem.fix
    assert not list((folder / "runs").rglob("*/experiment.yaml"))
    assert local.runs() == []


def test_a_right_to_write_is_needed_and_said_before_anything_starts(
    folder: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    with pytest.raises(InvalidExperiment) as caught:
        backend("local").start(hello(place()), base=folder, detach=True)
    assert "not allow this" in caught.value.problems[0].message


def test_a_server_that_is_not_there_is_worth_another_try(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": "b",
        "ENDPOINT_URL": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setattr("callsheet.backends.local.storage.PATIENCE", 0.5)
    with pytest.raises(RetryError, match="cannot be reached"):
        backend("local").start(hello(place()), base=folder, detach=True)
    assert backend("local").runs() == []


def test_logs_that_are_rotated_meanwhile_arrive_as_they_are_in_the_end(folder: Path, s3: S3Server) -> None:
    """Copies while a writer renames the files: nothing breaks, and the last copy is exact."""
    log = folder / "run" / "logs" / "a.log"
    log.parent.mkdir(parents=True)
    store = open_store(place())
    mirror = Mirror(folder / "run", store)
    stop = threading.Event()

    def rotate() -> None:
        n = 0
        while not stop.is_set():
            log.write_bytes(b"%d\n" % n * 100)
            log.rename(log.with_name("a.log.1"))
            n += 1

    writer = threading.Thread(target=rotate)
    writer.start()
    for _ in range(20):
        mirror.copy_all()
    stop.set()
    writer.join()
    mirror.copy_all()
    assert store.get("logs/a.log.1") == (folder / "run" / "logs" / "a.log.1").read_bytes()
