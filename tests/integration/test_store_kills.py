"""Killing writers of sets, with and without a successor that takes over at the same moment."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_runs import eventually, is_gone, program
from s3_server import BUCKET

from callsheet.store import Store, all_sets, claim, latest, open_store


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, folder: Path) -> Store:
    """An empty store of each kind."""
    if request.param == "file":
        return open_store((folder / "store").as_uri())
    request.getfixturevalue("s3")
    return open_store(f"s3://{BUCKET}/{secrets.token_hex(4)}")


class Writers:
    """Writers that can be started quickly, and what they told."""

    def __init__(self, nursery: subprocess.Popen[str]) -> None:
        self._nursery = nursery
        self.begun: dict[int, int] = {}
        """Process id to fence, in the order in which they took over."""
        self.stored: list[tuple[int, int]] = []
        """Fence and step of everything that was safely stored, as it was told."""
        self.fenced: set[int] = set()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._nursery.stdout
        for line in self._nursery.stdout:
            pid, word, fence, step = line.split()
            if word == "from":
                self.begun[int(pid)] = int(fence)
            elif word == "stored":
                self.stored.append((int(fence), int(step)))
            else:
                self.fenced.add(int(pid))

    def count(self, pid: int) -> int:
        """How many sets a writer has stored."""
        return sum(fence == self.begun[pid] for fence, _ in self.stored)

    def start(self) -> int:
        """One more writer, once it has taken over."""
        known = len(self.begun)
        assert self._nursery.stdin
        self._nursery.stdin.write("\n")
        self._nursery.stdin.flush()
        eventually(lambda: len(self.begun) > known, within=60)
        return list(self.begun)[-1]

    def kill(self, pid: int) -> None:
        """kill -9; True once it is gone."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            eventually(lambda: pid in self.fenced)  # its line may still be in the pipe
        eventually(lambda: is_gone(pid))

    def finish(self) -> None:
        """End those who are left, and read what they told."""
        for pid in self.begun:
            if not is_gone(pid):
                os.kill(pid, signal.SIGKILL)
        assert self._nursery.stdin
        self._nursery.stdin.close()
        self._reader.join(30)
        self._nursery.wait(30)


@contextmanager
def writers(store: Store) -> Iterator[Writers]:
    command = program("set_writers.py", store.url)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as nursery:
        started = Writers(nursery)
        try:
            yield started
        finally:
            started.finish()


@pytest.mark.parametrize(("store", "kills"), [("file", 200), ("s3", 60)], indirect=["store"])
@pytest.mark.long
def test_the_row_never_goes_back_however_writers_are_killed(store: Store, kills: int) -> None:
    """Each writer is killed at a random moment; half of them only after their successor has taken over."""
    chance = random.Random(7)
    seen = (0, 0)
    with writers(store) as started:
        current = started.start()
        for _ in range(kills):
            enough = len(started.stored) + chance.randrange(4)
            eventually(lambda enough=enough: len(started.stored) >= enough, within=60)
            if chance.random() < 0.5:
                successor = started.start()
                enough = chance.randrange(3)
                eventually(lambda who=successor, enough=enough: started.count(who) >= enough, within=60)
                started.kill(current)
            else:
                started.kill(current)
                successor = started.start()
            current = successor
            told = list(started.stored)
            found = latest(store)
            if told:
                assert found
                now = (found.record.fence, int(found.info["step"]))
                assert now >= max(told), "what was told to be stored is there, or a later one"
                assert now >= seen, "the latest is never an earlier one"
                seen = now
        started.kill(current)
    found = latest(store)
    assert found
    assert (found.record.fence, found.info["step"]) >= max(started.stored)
    for one in all_sets(store):
        one.verify()
        assert one.read("a") == b"%d" % one.info["step"] * 1_000
    by_number = [(one.record.fence, one.info["step"]) for one in reversed(all_sets(store))]
    assert by_number == sorted(by_number)
    last_writer = claim(store)
    last_writer.keep(3)
    assert len(all_sets(store)) <= 3
    assert len([e for e in store.list() if not e.key.startswith("manifests")]) == 2 * len(all_sets(store))


def test_a_writer_killed_between_its_parts_leaves_the_set_before(store: Store) -> None:
    code = """
import os, signal, sys
from callsheet.store import claim, open_store
writer = claim(open_store(sys.argv[1]))
with writer.write_set("good") as parts:
    parts.put("model", b"1")
with writer.write_set("half") as parts:
    parts.put("model", b"2")
    parts.put("optimizer", b"3")
    parts.finish()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, store.url])
    assert done.returncode == -signal.SIGKILL
    found = latest(store)
    assert found
    assert (found.name, found.read("model")) == ("good", b"1")
    assert len(all_sets(store)) == 1
    assert [entry.key for entry in store.list() if entry.key.startswith("half")]
    claim(store)
    assert not [entry.key for entry in store.list() if entry.key.startswith("half")]
    found.verify()


def test_writers_killed_again_and_again_while_they_write_leave_no_pile_of_files(folder: Path) -> None:
    """Each is killed in the middle of a part, of a plain object, of a download, or with a lock in its hands."""
    code = """
import os, signal, sys
from pathlib import Path
from callsheet.store import claim, open_store
from callsheet.store.store import save
from callsheet.store.temp_files import locked
where = sys.argv[1]
store = open_store(where)
def chunks():
    yield b"x" * 100_000
    os.kill(os.getpid(), signal.SIGKILL)
for kind in sys.stdin.read().split():
    if os.fork() == 0:
        if kind == "part":
            with claim(store.sub("sets")).write_set("half") as parts:
                parts.put("model", chunks())
        elif kind == "object":
            store.put("plain/object", chunks())
        elif kind == "download":
            save(chunks(), Path(where, "downloaded"))
        else:
            with locked(os.path.join(where, "plain", str(os.getpid()))):
                os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == -signal.SIGKILL
"""
    store = open_store(folder / "store")
    store.put("plain/first", b"")
    with claim(store.sub("sets")).write_set("good") as parts:
        parts.put("model", b"1")
    kinds = ["part", "object", "download", "lock"] * 15
    subprocess.run(
        [sys.executable, "-c", code, str(folder / "store")], input=" ".join(kinds), text=True, check=True
    )
    left = [path for path in (folder / "store").rglob("*") if path.name.endswith("~")]
    assert len(left) <= 4, "the last of each kind at most"
    assert len(list((folder / "store" / "sets").iterdir())) <= 3, "the manifests, the set, and half of one"
    store = open_store(folder / "store")
    store.put("plain/second", b"")
    claim(store.sub("sets"))
    assert latest(store.sub("sets")).name == "good"  # type: ignore[union-attr]
    left = [path for path in (folder / "store").rglob("*") if path.name.endswith("~")]
    assert [path.parent.name for path in left] == ["store"], "nobody has downloaded there since"


def test_the_file_of_a_living_writer_is_not_swept_however_long_it_takes(folder: Path) -> None:
    code = """
import sys
from callsheet.store import open_store
def chunks():
    yield b"x" * 1000
    print("writing", flush=True)
    sys.stdin.readline()
    yield b"y" * 1000
open_store(sys.argv[1]).put("a/x", chunks())
"""
    command = [sys.executable, "-c", code, str(folder / "store")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin
        assert writer.stdout
        assert writer.stdout.readline()
        (temporary,) = (folder / "store" / "a").iterdir()
        os.utime(temporary, (1, 1))
        os.kill(writer.pid, signal.SIGSTOP)
        store = open_store(folder / "store")
        claim(store)
        store.put("a/y", b"")
        os.kill(writer.pid, signal.SIGCONT)
        writer.stdin.write("\n")
        writer.stdin.close()
        assert writer.wait(60) == 0
    assert store.get("a/x") == b"x" * 1000 + b"y" * 1000
