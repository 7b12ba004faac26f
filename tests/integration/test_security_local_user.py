"""Another user of the machine, without the run's key, learns nothing of a run and does not disturb it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from local_runs import (
    PROGRAMS,
    PYTHON,
    eventually,
    experiment,
    is_gone,
    lines,
    python,
    replica,
    running,
    until_running,
)

from callsheet.backends.base import backend
from callsheet.backends.local.client import LocalRun
from callsheet.errors import UserError

STRANGER = 54321
SECRET = "what-the-run-knows"
LEARNER = """
import json, os
from callsheet.runtime import Context, TrajectoryReader
last, wrong, items = {}, 0, 0
progress = os.open("progress", os.O_WRONLY)
with Context.from_env() as ctx, TrajectoryReader(ctx, "trajectories") as reader:
    print("what-the-run-knows", flush=True)
    while len(last) < 2 or not os.path.exists("finish"):
        batch = reader.read(4, timeout=120)
        for n in range(4):
            who, number = (int(batch.writers[n]), int(batch.incarnations[n])), int(batch.sequences[n])
            wrong += number != last.get(who, number - 1) + 1
            wrong += bytes(batch["x"][n]) != b"what-the-run-knows" * 100
            last[who] = number
        items += 4
        os.pwrite(progress, b"%012d" % items, 0)
    print(json.dumps({"wrong": wrong, "writers": len(last)}), flush=True)
"""
ACTOR = """
import numpy as np
from callsheet.runtime import Context, TrajectoryWriter
with Context.from_env() as ctx:
    ctx.memory = ctx.index == 0  # one by memory, one by the network
    with TrajectoryWriter(ctx, "trajectories") as writer:
        while True:
            writer.write({"x": np.frombuffer(b"what-the-run-knows" * 100, "u1")})
"""
FILE = """
apiVersion: callsheet.dev/v1alpha1
kind: Experiment
metadata: {name: secret}
spec:
  env: [{name: TOKEN, value: what-the-run-knows}]
  roles:
  - {name: learner, command: [PYTHON, learner.py], binds: [{name: trajectories}, {name: metrics}]}
  - {name: actor, replicas: 2, command: [PYTHON, actor.py], connects: [trajectories]}
  lifecycle: {success: [learner]}
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can become another user"
)


def stranger(what: str, *arguments: str) -> Any:
    """What the other user gets when it tries something."""
    command = [PYTHON, str(PROGRAMS / "stranger.py"), what, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def public() -> Iterator[Path]:
    """A folder that everybody can look into, as home folders often are; pytest's own are closed."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@dataclass(frozen=True)
class Going:
    """A run that was started as people start one."""

    folder: Path
    client: subprocess.Popen[str]
    run: LocalRun

    def goes_on(self) -> None:
        """More rollouts come than were there a moment ago."""
        path = self.folder / "progress"
        before = int(path.read_text())
        eventually(lambda: int(path.read_text()) > before, 60)

    @property
    def endpoints(self) -> dict[str, str]:
        """Where each endpoint is, which a stranger learns from the system's tables."""
        found = json.loads(Path(self.run.layout.addresses).read_text())["endpoints"]
        return {name: endpoint["addresses"][0] for name, endpoint in found.items()}

    def doors(self) -> list[str]:
        """The learner's abstract sockets, which everybody sees in the system's tables."""
        pid = replica(self.run.status(), "learner/0").containers[0].pid
        held = {os.readlink(path)[8:-1] for path in Path(f"/proc/{pid}/fd").iterdir() if _is_socket(path)}
        table = (line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:])
        found = {fields[7][1:] for fields in table if fields[6] in held and fields[7:]}
        assert found
        return sorted(found)


def _is_socket(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.readlink(path).startswith("socket:")
    return False


@pytest.fixture(scope="module")
def going(public: Path) -> Iterator[Going]:
    """It ends, with the right result, after all that was tried."""
    (public / "learner.py").write_text(LEARNER)
    (public / "actor.py").write_text(ACTOR)
    for name in ("learner.py", "actor.py"):
        (public / name).chmod(0o600)
    (public / "progress").write_text("0")
    (public / "exp.yaml").write_text(FILE.replace("PYTHON", PYTHON))
    (public / "exp.yaml").chmod(0o600)
    env = os.environ | {"XDG_STATE_HOME": str(public / "state")}
    command = [PYTHON, "-m", "callsheet", "run", "-f", "exp.yaml"]
    with subprocess.Popen(
        command,
        cwd=public,
        env=env,
        umask=0o022,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as client:
        try:
            eventually(lambda: int((public / "progress").read_text()), 120)
            yield Going(public, client, LocalRun(next((public / "runs" / "secret").iterdir())))
            (public / "finish").touch()
            said = client.communicate(timeout=120)[0]
            assert client.returncode == 0, said
            assert '{"wrong": 0, "writers": 2}' in said
        finally:
            client.terminate()


def test_no_file_of_a_run_can_be_read_or_replaced(going: Going) -> None:
    tried = stranger("files", str(going.folder))
    assert tried["written"] == []
    assert [path for path in tried["read"] if SECRET in Path(path).read_text(errors="replace")] == []
    layout = going.run.layout
    guessed = [*map(str, going.run.folder.rglob("*")), layout.keys, layout.plan, layout.status]
    assert len(guessed) > 10
    assert stranger("open_files", *guessed) == []
    going.goes_on()


def test_the_rest_stays_closed_when_the_owner_shares_the_results(going: Going) -> None:
    runs = going.folder / "runs"
    runs.chmod(0o755)
    try:
        read = {Path(path).name for path in stranger("files", str(runs))["read"]}
        assert {"experiment.yaml", "status.json", "learner.log"} <= read
        assert not read & {"run.key", "plan.json", "launch.json", "addresses.json", "supervisor.log"}
        assert stranger("control", str(going.run.folder)) == []
    finally:
        runs.chmod(0o700)
    going.goes_on()


def test_nobody_else_steers_a_run_or_looks_into_its_processes(going: Going) -> None:
    pids = [str(c.pid) for r in going.run.status().replicas for c in r.containers]
    parents = {re.search(r"PPid:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())[1] for pid in pids}  # type: ignore[index]
    assert stranger("processes", *pids, *parents, str(going.client.pid)) == {"read": [], "written": []}
    assert stranger("control", str(going.run.folder)) == []
    going.goes_on()


def test_who_has_not_the_key_gets_a_greeting_and_no_more(going: Going) -> None:
    address = going.endpoints["trajectories"]
    heard = bytes.fromhex(stranger("raw", address))
    assert re.fullmatch(rb"\xff\0{7}\x01\x7f\x03.CURVE\0{15}[\0\x01]\0{31}", heard, re.DOTALL), heard
    assert stranger("links", going.run.id, address) == []
    for said in stranger("doors", *going.doors()).values():
        assert [len(word) for word in said] == [64]  # a challenge of 32 bytes, new each time
    going.goes_on()


def test_a_port_that_a_run_listens_on_cannot_be_taken(going: Going) -> None:
    addresses = list(going.endpoints.values())
    everywhere = [f"0.0.0.0:{address.rpartition(':')[2]}" for address in addresses]
    assert stranger("squat", *addresses, *everywhere) == []
    going.goes_on()


def test_the_metrics_port_tells_numbers_to_everyone_and_nothing_else(going: Going) -> None:
    address = going.endpoints["metrics"]
    page = stranger("scrape", address)
    assert "callsheet_transport" in page
    assert SECRET not in page
    going.goes_on()


def test_another_users_processes_do_not_keep_a_run_from_ending(folder: Path) -> None:
    exp = experiment({"name": "a", "command": python("import time\ntime.sleep(600)")})
    with running(exp, folder) as run:
        until_running(run)
        env = {"CALLSHEET_RUN": run.id, "CALLSHEET_ROLE": "a", "CALLSHEET_INDEX": "0"}
        with subprocess.Popen(["sleep", "600"], env=os.environ | env, user=STRANGER, group=STRANGER) as other:
            try:
                run.stop()
                assert run.wait(30).phase == "Stopped"
                assert not is_gone(other.pid)
            finally:
                other.kill()


@pytest.mark.parametrize("planted", ["a folder", "a link"])
def test_a_runs_folder_that_somebody_else_put_there_is_refused(
    public: Path, planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = public / planted.replace(" ", "-")
    place.mkdir()
    place.chmod(0o1777)
    monkeypatch.chdir(place)
    trap = public / f"trap-{planted[-1]}"
    trap.mkdir()
    os.chown(trap, STRANGER, STRANGER)
    if planted == "a link":
        os.symlink(trap, "runs")
        os.lchown("runs", STRANGER, STRANGER)
    else:
        trap.rename(place / "runs")
    exp = experiment({"name": "a", "command": python("print()")})
    with pytest.raises(UserError, match="belongs to another user"):
        backend("local").start(exp, base=place, detach=True)
    assert list((place / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [("NULL", "both must belong to the same run"), ("CURVE", "waiting for trajectories")],
)
def test_who_takes_a_port_before_the_run_does_hears_nothing(folder: Path, mechanism: str, said: str) -> None:
    """Ports belong to whoever takes them first: a run can be kept from starting so, but nothing is told to a thief."""
    actor = folder / "actor.py"
    actor.write_text(ACTOR)
    exp = experiment(
        {
            "name": "learner",
            "command": python("import time\ntime.sleep(600)"),
            "binds": [{"name": "trajectories"}],
        },
        {"name": "actor", "replicas": 2, "command": [PYTHON, str(actor)], "connects": ["trajectories"]},
    )
    with running(exp, folder) as run:
        book = eventually(lambda: json.loads(Path(run.layout.addresses).read_text())["endpoints"])
        address = book["trajectories"]["addresses"][0]
        command = [PYTHON, str(PROGRAMS / "stranger.py"), "hold", address, mechanism]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as thief:
            assert thief.stdout is not None
            assert thief.stdout.readline() == "holding\n"
            eventually(
                lambda: all(any(said in line for line in lines(run, f"actor/{n}")) for n in (0, 1)), 60
            )
            heard = bytes.fromhex(json.loads(thief.communicate("enough\n", timeout=60)[0]))
    assert heard.startswith(b"\xff\0\0\0\0\0\0\0\x01\x7f")  # ZeroMQ's greeting
    assert (b"CURVE" in heard) == (mechanism == "CURVE")
    assert SECRET.encode() not in heard
    assert run.id.encode() not in heard
