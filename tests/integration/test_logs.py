"""What processes print: kept as it is, bounded in size, readable by time, by place and as it grows."""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_runs import experiment, lines, program, python, replica, running, until, until_all_spoke

from callsheet.backends.base import LogLine, LogQuery, Target

LIMIT = 5 * 10 * 1024 * 1024


def test_stdout_and_stderr_land_in_one_file_in_their_order(folder: Path) -> None:
    code = "import sys,os\nfor i in range(3):\n os.write(1, b'out %d\\n' % i); os.write(2, b'err %d\\n' % i)"
    with running(experiment({"name": "actor", "replicas": 2, "command": python(code)}), folder) as run:
        run.wait(20)
        path = folder / "runs" / "exp" / run.id / "logs" / "actor" / "1" / "actor.log"
        assert path.read_text() == "out 0\nerr 0\nout 1\nerr 1\nout 2\nerr 2\n"


def test_output_that_is_not_utf8_is_kept_byte_for_byte_and_shown_as_far_as_it_goes(folder: Path) -> None:
    code = "import os; os.write(1, bytes(range(128, 256)) + b'\\nend')"
    with running(experiment({"name": "actor", "command": python(code)}), folder) as run:
        status = run.wait(20)
        assert (Path(run.layout.logs) / "actor/0/actor.log").read_bytes() == bytes(range(128, 256)) + b"\nend"
        assert lines(run, "actor")[-1] == "end"
        assert replica(status, "actor/0").containers[0].last_line == "end"


@pytest.mark.long
def test_a_long_log_is_rotated_and_what_was_dropped_is_counted_and_said(folder: Path) -> None:
    size = 56 * 1024 * 1024
    with running(experiment({"name": "actor", "command": program("flood.py", str(size))}), folder) as run:
        status = run.wait(60)
        log = replica(status, "actor/0").containers[0]
        files = [f for f in (Path(run.layout.logs) / "actor" / "0").iterdir() if not f.name.startswith(".")]
        on_disk = sum(f.stat().st_size for f in files)
        assert on_disk <= LIMIT
        assert log.log_bytes >= size
        assert log.log_dropped == log.log_bytes - on_disk
        assert status.warnings == [f"actor/0: {log.log_dropped:,} bytes of its log were dropped"]
        kept = [int(line[:9]) for line in itertools.islice(lines(run, "actor"), 1, None)]
        assert kept == list(range(kept[0], kept[0] + len(kept))), "the newest part is there without a gap"


@pytest.mark.exclusive
def test_a_flooding_replica_disturbs_neither_its_neighbors_nor_the_supervisor(folder: Path) -> None:
    window = "0.5"
    server = {"name": "server", "command": program("server.py", "ECHO"), "binds": [{"name": "echo"}]}
    client = {
        "name": "client",
        "connects": ["echo"],
        "command": program("round_trips.py", "p99", "26", window),
    }
    flood = {"name": "flood", "command": program("flood.py", "--every", window)}
    exp = experiment(server, client, flood, lifecycle={"success": ["client"]})
    with running(exp, folder) as run:
        memory = []
        for status in run.watch():
            memory.append(_resident(status.supervisor))
            if status.done:
                break
        assert status.phase == "Succeeded", status
        assert replica(status, "flood/0").containers[0].log_bytes > 40 * 1024 * 1024
    found = json.loads((folder / "p99").read_text())
    settled = 6  # windows: by then what a container may write quickly is used up
    quiet, loud = statistics.median(found["quiet"][settled:]), statistics.median(found["loud"][settled:])
    print(f"round trip p99: {quiet:.0f} us, beside a flood {loud:.0f} us, {loud / quiet:.2f} times as long")
    assert loud <= 2 * quiet
    growth = max(memory) - memory[2]
    assert growth < 4 * 1024 * 1024, f"the supervisor grew by {growth} bytes"


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_costs_log_lines_and_not_the_run(folder: Path, small_disk: Path) -> None:
    flood = {"name": "flood", "command": program("flood.py", str(4 * 1024 * 1024))}
    patient = {"name": "actor", "command": program("patient.py")}
    exp = experiment(flood, patient, storage=f"file://{small_disk}", lifecycle={"success": ["actor"]})
    with running(exp, folder) as run:
        status = until(run, lambda s: replica(s, "flood/0").phase == "Succeeded")
        log = replica(status, "flood/0").containers[0]
        assert "No space left on device" in log.log_error
        assert log.log_dropped > 2 * 1024 * 1024
        assert any("No space left on device" in warning for warning in status.warnings)
        assert replica(status, "actor/0").phase == "Running"
        run.stop()
        assert run.wait(10).phase == "Stopped"


def test_tail_gives_the_last_lines_of_each_container(folder: Path) -> None:
    command = python("for i in range(100): print(i)")
    with running(experiment({"name": "actor", "replicas": 2, "command": command}), folder) as run:
        run.wait(20)
        assert [line.text for line in run.logs(LogQuery(tail=2))] == ["98", "99", "98", "99"]
        assert not list(run.logs(LogQuery(tail=0)))
        assert len(list(run.logs(LogQuery(tail=1000)))) == 200


def test_grep_gives_matching_lines_alone(folder: Path) -> None:
    command = python("for i in range(100): print('step', i)")
    with running(experiment({"name": "actor", "command": command}), folder) as run:
        run.wait(20)
        assert [line.text for line in run.logs(LogQuery(grep=r"\b9\d$", tail=5))] == [
            f"step {i}" for i in range(95, 100)
        ]


def test_since_gives_what_was_written_lately(folder: Path) -> None:
    command = ["sh", "-c", "echo old; sleep 8; echo new"]
    with running(experiment({"name": "actor", "command": command}), folder) as run:
        run.wait(20)
        assert [line.text for line in run.logs(LogQuery(since=7))] == ["new"]
        assert [line.text for line in run.logs(LogQuery(since=60))] == ["old", "new"]


def test_following_sees_lines_as_they_come_and_replicas_that_appear_later(folder: Path) -> None:
    role = {"name": "actor", "scale": {"min": 1, "max": 4}, "command": program("patient.py")}
    with running(experiment(role), folder) as run:
        seen: list[LogLine] = []
        reader = threading.Thread(target=lambda: seen.extend(run.logs(LogQuery(follow=True))))
        reader.start()
        until_all_spoke(run)
        run.scale({"actor": 3})
        until(run, lambda s: len([r for r in s.replicas if r.containers[0].last_line]) == 3)
        run.stop()
        run.wait(10)
        reader.join(10)
        assert {line.index for line in seen if line.text == "stopping"} == {0, 1, 2}


def test_following_crosses_a_rotation_without_a_gap(folder: Path) -> None:
    size = 25 * 1024 * 1024
    exp = experiment({"name": "actor", "command": program("flood.py", str(size))})
    with running(exp, folder) as run:
        numbers = [int(line.text[:9]) for line in run.logs(LogQuery(follow=True, targets=[Target("actor")]))]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) * 101 >= size


def test_a_follower_ends_when_the_supervisor_is_killed(folder: Path) -> None:
    with running(experiment({"name": "actor", "command": program("patient.py")}), folder) as run:
        status = until_all_spoke(run)
        follower = threading.Thread(target=lambda: list(run.logs(LogQuery(follow=True))))
        follower.start()
        os.kill(status.supervisor, signal.SIGKILL)
        begun = time.monotonic()
        follower.join(10)
        assert time.monotonic() - begun < 5
