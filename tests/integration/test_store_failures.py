"""What a store says when something is wrong, and how long it tries before it says it."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import BUCKET, SECRET, S3Server

from callsheet.errors import CallsheetError, RetryError
from callsheet.store import Denied, DiskFull, NoBucket, Store, Unreachable, open_store

MB = 1024 * 1024


def s3_store(patience: float = 30.0) -> Store:
    return open_store(f"s3://{BUCKET}/{secrets.token_hex(4)}", patience=patience)


def failure(work: object) -> CallsheetError:
    """The error of a call; with no secret in it, in what caused it, or in how it is printed."""
    with pytest.raises(CallsheetError) as caught:
        work()  # type: ignore[operator]
    error: BaseException | None = caught.value
    while error:
        assert SECRET not in f"{error}{error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return caught.value


def test_a_bucket_that_is_not_there_is_named(s3: S3Server) -> None:
    store = open_store("s3://no-such-bucket/x")
    for verb in (
        lambda: store.put("a", b""),
        lambda: store.get("a"),
        store.list,
        lambda: store.put_if_absent("a", b""),
    ):
        error = failure(verb)
        assert isinstance(error, NoBucket)
        assert error.message == f"there is no s3://no-such-bucket at {s3.endpoint}"
        assert "create it first" in error.fix


@pytest.mark.parametrize(("who", "secret"), [("user", "wrong"), ("nobody", SECRET)])
def test_wrong_keys_are_told_from_missing_rights(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, who: str, secret: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", who)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    store = s3_store()
    for verb in (lambda: store.put("a", b""), lambda: store.get("a"), store.list):
        error = failure(verb)
        assert isinstance(error, Denied)
        assert "does not accept the credentials" in error.message
        assert "AWS_ACCESS_KEY_ID" in error.fix


def test_a_reader_may_not_write(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    store = s3_store()
    error = failure(lambda: store.put("a", b""))
    assert isinstance(error, Denied)
    assert f"do not allow this for {store.url}/a" in error.message
    assert store.list() == []


def test_a_profile_of_the_aws_tools_is_enough(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    for name in s3.environment():
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    (folder / ".aws").mkdir()
    (folder / ".aws" / "config").write_text(f"[default]\nendpoint_url = {s3.endpoint}\nregion = us-east-1\n")
    (folder / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id = user\naws_secret_access_key = {SECRET}\n"
    )
    store = s3_store()
    store.put("x", b"by profile")
    assert store.get("x") == b"by profile"


def test_a_server_that_is_not_there_is_asked_until_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": SECRET,
        "ENDPOINT_URL": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    store = s3_store(patience=1.0)
    begun = time.monotonic()
    error = failure(lambda: store.get("a"))
    assert isinstance(error, Unreachable)
    assert error.message == f"s3://{BUCKET} at http://127.0.0.1:9 cannot be reached"
    assert 0.3 < time.monotonic() - begun < 10
    assert isinstance(failure(lambda: store.put("a", b"x" * 20 * MB)), Unreachable)
    assert isinstance(failure(lambda: store.put_if_absent("a", b"")), Unreachable)


def test_a_wait_for_a_server_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals are handled while a call waits: SIGTERM must be able to say that it is time to stop."""
    for name, value in {
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": SECRET,
        "ENDPOINT_URL": "http://127.0.0.1:9",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    store = s3_store(patience=600.0)
    threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        store.get("a")
    assert time.monotonic() - begun < 60


def test_a_server_that_stays_silent_counts_as_unreachable(own_s3: S3Server) -> None:
    store = s3_store(patience=1.0)
    own_s3.freeze()
    error = failure(lambda: store.get("a"))
    own_s3.thaw()
    assert isinstance(error, Unreachable)
    assert "did not answer in time" in error.message


class Slowly:
    """An upload in many requests that tells when it is under way, and can be held there."""

    def __init__(self, size: int) -> None:
        self.data = secrets.token_bytes(size)
        self.under_way = threading.Event()
        self.go_on = threading.Event()

    def progress(self, done: int, total: int | None) -> None:
        if done > 16 * MB:
            self.under_way.set()
            self.go_on.wait(60)


@pytest.mark.parametrize("source", ["bytes", "iterator"])
@pytest.mark.long
def test_a_server_killed_in_mid_upload_and_started_again_gets_it_all(own_s3: S3Server, source: str) -> None:
    store = s3_store(patience=90.0)
    acknowledged = {f"small/{n}": secrets.token_bytes(1_000) for n in range(50)}
    for key, data in acknowledged.items():
        store.put(key, data)
    large = secrets.token_bytes(9 * MB)
    store.put("large", large)
    upload = Slowly(60 * MB)
    chunks = (upload.data[at : at + MB] for at in range(0, len(upload.data), MB))
    failures: list[CallsheetError] = []

    def send() -> None:
        try:
            store.put("upload", upload.data if source == "bytes" else chunks, progress=upload.progress)
        except CallsheetError as error:
            failures.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    assert upload.under_way.wait(60)
    own_s3.kill()
    upload.go_on.set()
    own_s3.start()
    sender.join(120)
    assert not sender.is_alive()
    assert not failures, failures
    assert store.get("upload") == upload.data
    assert store.get("large") == large
    assert all(store.get(key) == data for key, data in acknowledged.items())


@pytest.mark.long
def test_a_server_killed_in_mid_upload_that_stays_away_is_said(own_s3: S3Server) -> None:
    store = s3_store(patience=2.0)
    upload = Slowly(40 * MB)
    found: list[CallsheetError] = []

    def send() -> None:
        try:
            store.put("upload", upload.data, progress=upload.progress)
        except CallsheetError as error:
            found.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    assert upload.under_way.wait(60)
    own_s3.kill()
    upload.go_on.set()
    sender.join(120)
    (error,) = found
    assert isinstance(error, Unreachable)
    assert "cannot be reached" in error.message
    own_s3.start()
    own_s3.wait_until_ready()
    assert store.list() == [], "half an upload is nowhere to be seen"


def test_a_short_absence_is_not_noticed(own_s3: S3Server) -> None:
    store = s3_store(patience=60.0)
    store.put("x", b"1")
    own_s3.kill()
    threading.Timer(1.0, own_s3.start).start()
    assert store.put_if_absent("y", b"2")
    assert store.get("x") == b"1"
    assert [entry.key for entry in store.list()] == ["x", "y"]


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """Eight megabytes, as root; or a folder of a device that is always full."""
    where = folder / "disk"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", where], check=True)
    yield where
    subprocess.run(["umount", where], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_said_and_keeps_what_was_there(small_disk: Path) -> None:
    store = open_store(small_disk)
    store.put("x", b"1" * MB)
    for work in (
        lambda: store.put("x", b"2" * 20 * MB),
        lambda: store.put("y", iter([b"2" * MB] * 20)),
        lambda: store.put_if_absent("z", b"2" * 20 * MB),
    ):
        error = failure(work)
        assert isinstance(error, DiskFull)
        assert isinstance(error, RetryError)
        assert "free some space" in error.fix
    assert [(entry.key, entry.size) for entry in store.list()] == [("x", MB)]
    assert store.get("x") == b"1" * MB
    assert os.listdir(small_disk) == ["x"], "nothing half-written takes up the space"


def test_a_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder / "file").write_text("")
    error = failure(lambda: open_store(folder / "file").put("x", b""))
    assert "is both a file and a folder" in error.message
    error = failure(lambda: open_store("/proc/nothing").put("x", b""))
    assert "/proc/nothing" in error.message


def test_files_that_a_killed_writer_left_are_not_seen_and_go_with_the_next_write(folder: Path) -> None:
    code = """
import os, signal, sys
from callsheet.store import open_store
def chunks():
    yield b"x" * 1000
    os.kill(os.getpid(), signal.SIGKILL)
open_store(sys.argv[1]).put("a/x", chunks())
"""
    done = subprocess.run([sys.executable, "-c", code, str(folder / "store")])
    assert done.returncode == -signal.SIGKILL
    store = open_store(folder / "store")
    assert store.list() == []
    left = list((folder / "store" / "a").iterdir())
    assert len(left) == 1
    store.put("a/y", b"")
    assert [path.name for path in (folder / "store" / "a").iterdir()] == ["y"]


def test_the_package_for_clouds_is_named_where_it_is_missing() -> None:
    code = f"""
import sys
sys.modules["obstore"] = None
from callsheet.store import open_store
open_store("folder").put("x", b"a folder needs no such package")
open_store("s3://{BUCKET}")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'callsheet[rl]'" in done.stderr
    assert Path("folder/x").exists()
