"""How the supervisor and an attached client are hurt: real runs on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from callsheet.backends.base import Status, backend
from callsheet.backends.local.client import LocalRun
from callsheet.spec.experiment import Experiment
from callsheet.store import open_store
from tools.faults import inject, s3server
from tools.faults.machine import Clock, memory_limit, stop_for
from tools.faults.measures import Measure, Setting
from tools.faults.scenes import Measured
from tools.faults.storeproxy import MULTIPART, StoreProxy, StoreScript
from tools.faults.waiting import eventually

WAITS = "import signal\nprint('up', flush=True)\nsignal.pause()"
COUNTS = "import time\nfor n in range(150):\n    print('step', n, flush=True)\n    time.sleep(0.1)"
MUCH = "for n in range(20000):\n    print('x' * 999)"


def _document(code: str, **spec: Any) -> dict[str, Any]:
    role = {"name": "actor", "replicas": 2, "command": [sys.executable, "-I", "-S", "-u", "-c", code]}
    return {"metadata": {"name": "hurt"}, "spec": {"roles": [role], **spec}}


@contextlib.contextmanager
def _running(
    folder: Path, code: str, env: Mapping[str, str] | None = None, **spec: Any
) -> Iterator[LocalRun]:
    folder.mkdir(parents=True, exist_ok=True)
    with s3server.variables({"XDG_STATE_HOME": str(folder / "state"), **(env or {})}):
        made = Experiment.model_validate(_document(code, **spec))
        run = backend("local").start(made, base=folder, detach=True)
        assert isinstance(run, LocalRun)
        try:
            yield run
        finally:
            run.stop(kill=True)
            run.wait(30)


def _ready(run: LocalRun, attempt: int = 0) -> Status | None:
    status = run.status()
    return status if status.roles[0].ready == 2 and status.replicas[0].attempt >= attempt else None


def _killed_replica_is_back(run: LocalRun) -> float:
    """Kill a replica; how long it took until it was back."""
    status = eventually(lambda: _ready(run), 60)
    begun = time.monotonic()
    pid = status.replicas[0].containers[0].pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: _ready(run, status.replicas[0].attempt + 1), 60)
    return round(time.monotonic() - begun, 2)


def stopped(setting: Setting) -> Measured:
    """SIGSTOP for 10 s; a replica that dies meanwhile is back afterwards."""
    with _running(setting.folder, WAITS) as run:
        status = eventually(lambda: _ready(run), 60)
        stopping = stop_for(status.supervisor, 10.0)
        pid = status.replicas[0].containers[0].pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        stopping.join()
        begun = time.monotonic()
        eventually(lambda: _ready(run, 1), 20)
        back = round(time.monotonic() - begun, 2)
        assert run.status().phase == "Running"
        return {"back_s": back}


def store(script: StoreScript, code: str = "print('done')", seconds: float = 8.0) -> Measure:
    """The store is in trouble when a run ends: its results are there all the same."""

    def measure(setting: Setting) -> Measured:
        server = setting.s3()
        storage = f"s3://{s3server.BUCKET}/{secrets.token_hex(4)}"
        with (
            StoreProxy(server.endpoint, setting.seed) as proxy,
            _running(
                setting.folder,
                f"import time\ntime.sleep(3)\n{code}",
                {**server.environment(), "AWS_ENDPOINT_URL": proxy.url},
                storage=storage,
            ) as run,
        ):
            begun = time.monotonic()
            inject.store(proxy, seconds, script)
            status = run.wait(120)
            assert status is not None
            assert (status.phase, status.warnings) == ("Succeeded", []), status
            took = round(time.monotonic() - begun, 2)
            with s3server.variables(server.environment()):
                there = open_store(f"{storage}/hurt/{run.id}")
                assert json.loads(there.get("status.json"))["phase"] == "Succeeded"
                size = sum(entry.size for entry in there.list("logs"))
            assert proxy.done[script.answer] > 0, "no request was hit"
            return {"ended_after_s": took, "requests_hit": proxy.done[script.answer], "log_bytes": size}

    return measure


multipart = store(StoreScript("cut", only=MULTIPART, times=3), MUCH, 15.0)


def garbage(setting: Setting) -> Measured:
    """Bytes that are no request arrive at its control socket; it answers the next one."""
    lines = [
        b"\x00\xff\xfe\n",
        b"[]\n",
        b"null\n",
        b'{"op":\n',
        b'{"op": 7}\n',
        b"[" * 100_000 + b"\n",
        b'{"a": 1}\n',
    ]
    return _told(setting, [secrets.token_bytes(1000) + b"\n", *lines])


def oversize(setting: Setting) -> Measured:
    """A line of 64 MB without an end."""
    return _told(setting, [b"x" * (64 << 20)])


def _told(setting: Setting, lines: list[bytes]) -> Measured:
    with _running(setting.folder, WAITS) as run:
        eventually(lambda: _ready(run), 60)
        for line in lines:
            with contextlib.suppress(OSError):
                _say(run, line)
        begun = time.monotonic()
        assert run.status().phase == "Running"
        answered = round(time.monotonic() - begun, 2)
        return {"answered_s": answered, "back_s": _killed_replica_is_back(run)}


def _say(run: LocalRun, line: bytes) -> None:
    folder = os.open(Path(run.layout.socket).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as speaker:
            speaker.settimeout(30)
            speaker.connect(f"/proc/self/fd/{folder}/{Path(run.layout.socket).name}")
            speaker.sendall(line)
            speaker.shutdown(socket.SHUT_WR)
            while speaker.recv(1 << 16):
                pass
    finally:
        os.close(folder)


def out_of_memory(setting: Setting) -> Measured:
    """The kernel kills it; nothing of the run is left, and its end is told."""
    with _running(setting.folder, WAITS) as run:
        status = eventually(lambda: _ready(run), 60)
        pids = [replica.containers[0].pid for replica in status.replicas]
        with memory_limit(status.supervisor, 16), contextlib.suppress(OSError):
            _say(run, b"x" * (64 << 20))
        begun = time.monotonic()
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 10, "replicas live on")
        gone = round(time.monotonic() - begun, 2)
        lost = run.wait(20)
        assert lost is not None
        assert lost.phase == "Failed", lost
        assert "supervisor was killed" in lost.reason
        return {"gone_s": gone, "said": lost.reason}


def attached(hurt: Callable[[subprocess.Popen[bytes], Clock], None], *, faked: bool = False) -> Measure:
    """Hurt a `callsheet run` that shows lines; in the end it has shown them all."""

    def measure(setting: Setting) -> Measured:
        setting.folder.mkdir(parents=True, exist_ok=True)
        file = setting.folder / "hurt.json"  # JSON is YAML
        file.write_text(
            json.dumps({"apiVersion": "callsheet.dev/v1alpha1", "kind": "Experiment", **_document(COUNTS)})
        )
        clock = Clock(setting.folder / "clock")
        env = {
            **os.environ,
            "XDG_STATE_HOME": str(setting.folder / "state"),
            **(clock.environment if faked else {}),
        }
        shown = setting.folder / "shown"
        with shown.open("wb") as out:
            client = subprocess.Popen(
                [sys.executable, "-m", "callsheet", "run", "-f", str(file)],
                stdout=out, stderr=subprocess.STDOUT, env=env, cwd=setting.folder,
            )  # fmt: skip
        try:
            eventually(lambda: b"actor/1 | step 5" in shown.read_bytes(), 60)
            hurt(client, clock)
            assert client.wait(120) == 0, shown.read_text()
        finally:
            client.kill()
            client.wait()
        for index in range(2):
            lines = [line for line in shown.read_text().splitlines() if line.startswith(f"actor/{index} | ")]
            assert lines == [f"actor/{index} | step {n}" for n in range(150)], lines
        return {"lines_shown": 300}

    return measure


def stop_client(client: subprocess.Popen[bytes], clock: Clock) -> None:
    """For 10 s."""
    stop_for(client.pid, 10.0).join()


def jump_client(client: subprocess.Popen[bytes], clock: Clock) -> None:
    """Two days on, three back."""
    for jump in ("+2d", "-3d"):
        clock.jump(jump)
        time.sleep(2)
