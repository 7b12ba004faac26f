"""Ports that answer one request at a time: the metrics of a process, and a supervisor's control socket."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from tools.fuzz.chance import Chance
from tools.fuzz.parsers import as_json
from tools.fuzz.result import Result

_ROOT: Final = Path(__file__).parents[2]
_GET: Final = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/json;q=0.9, text/plain\r\nConnection: close\r\n\r\n"
_SERVING: Final = """
import sys
from callsheet.metrics.server import Server
server = Server("127.0.0.1:0", lambda kind: "x 1\\n" * 100)
print(server.address, flush=True)
sys.stdin.read()
"""
_EXPERIMENT: Final = """apiVersion: callsheet.dev/v1alpha1
kind: Experiment
metadata: {name: fuzzed}
spec: {roles: [{name: sleeper, command: [sleep, "600"]}]}
"""
LARGEST_GROWTH: Final = 100 << 20
LONGEST_GAP: Final = 2.0


def _memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) << 10


class _Honest(threading.Thread):
    """Asks as one should, and notes how long it took at most."""

    def __init__(self, ask: Any) -> None:
        super().__init__(daemon=True)
        self._ask, self._ended = ask, threading.Event()
        self.gap, self.served, self.failed = 0.0, 0, ""

    def run(self) -> None:
        while not self._ended.wait(0.05):
            begun = time.monotonic()
            try:
                while not self._ask():
                    if time.monotonic() - begun > 20:
                        self.failed = "an honest client is not served any more"
                        return
                    time.sleep(0.02)
            except OSError as error:
                self.failed = f"an honest client was turned away: {error}"
                return
            self.gap = max(self.gap, time.monotonic() - begun)
            self.served += 1

    def end(self) -> None:
        self._ended.set()
        self.join(30)


def _judge(result: Result, honest: _Honest, alive: bool, seed: int, gap: float) -> Result:
    honest.end()
    result.gap = honest.gap
    name = result.target
    if not alive:
        result.failures.append(f"{name}: the process ended (seed {seed})")
    elif honest.failed or not honest.served:
        result.failures.append(f"{name}: {honest.failed or 'nobody was served'} (seed {seed})")
    if honest.gap > gap:
        result.failures.append(f"{name}: an honest client waited {honest.gap:.1f} s (seed {seed})")
    if result.growth > LARGEST_GROWTH:
        result.failures.append(f"{name}: {result.growth:,} bytes of memory more than before (seed {seed})")
    return result


def metrics_port(seed: int, cases: int, seconds: float, *, gap: float = LONGEST_GAP) -> Result:
    """Requests that are no requests, at the port where a process shows its metrics."""
    result, chance, begun = Result("metrics port"), Chance(f"metrics-{seed}"), time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", _SERVING], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().rpartition(":")

        def get() -> bool:
            with (
                contextlib.suppress(ConnectionResetError, TimeoutError),
                socket.create_connection((host, int(port)), 5) as one,
            ):
                one.sendall(_GET)
                return one.recv(1 << 16).startswith(
                    b"HTTP/1.1 200"
                )  # busy with eight others: it is told to come again
            return False

        honest = _Honest(get)
        honest.start()
        before, until = _memory(process.pid), time.monotonic() + seconds
        while result.cases < cases and time.monotonic() < until and process.poll() is None:
            result.cases += 1
            way = chance.random()
            data = (
                chance.bytes_changed(_GET)
                if way < 0.8
                else chance.bytes_(5000)
                if way < 0.95
                else b"A: " + b"x" * 20_000
            )
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 2) as one:
                one.settimeout(0.02 if chance.random() < 0.9 else 0.3)
                one.sendall(data)
                one.recv(4096)
            result.growth = max(result.growth, _memory(process.pid) - before)
        result.seconds = time.monotonic() - begun
        alive = process.poll() is None
        _judge(result, honest, alive, seed, gap)
        process.kill()
    return result


def control_socket(seed: int, cases: int, seconds: float, *, gap: float = LONGEST_GAP) -> Result:
    """Lines that are no requests, at the socket of a run's supervisor."""
    result, chance, begun = Result("control socket"), Chance(f"control-{seed}"), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "experiment.yaml"
        file.write_text(_EXPERIMENT)
        command = [sys.executable, "-m", "callsheet", "run", "-f", str(file), "--detach"]
        said = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
        found = list(Path(folder).rglob("*.sock"))
        if said.returncode or not found:
            result.failures.append(f"the run did not start: {said.stdout}{said.stderr}")
            return result
        try:
            _control(result, chance, found[0], cases, seconds, seed, gap)
        finally:
            subprocess.run(
                [sys.executable, "-m", "callsheet", "stop", "fuzzed"],
                cwd=folder,
                capture_output=True,
                timeout=60,
                check=False,
            )
    result.seconds = time.monotonic() - begun
    return result


_REQUESTS: Final = (
    {"op": "status", "since": 1, "timeout": 0.0},
    {"op": "environment", "role": "sleeper", "index": 0},
    {"op": "restart", "replicas": [["nobody", 7]]},
    {"op": "apply", "plan": {"experiment": "fuzzed", "replicas": []}, "generation": 1},
    {"op": "join", "plan": {}, "generation": 0, "role": "sleeper", "index": 0},
)


def _control(
    result: Result, chance: Chance, path: Path, cases: int, seconds: float, seed: int, gap: float
) -> None:
    def ask(data: bytes, patience: float) -> bytes:
        with socket.socket(socket.AF_UNIX) as one:
            one.settimeout(patience)
            one.connect(str(path))
            one.sendall(data)
            return one.recv(1 << 16)

    def status() -> bool:
        return ask(b'{"op": "status"}\n', 10.0).startswith(b'{"version"')

    honest = _Honest(status)
    honest.start()
    pid = json.loads(ask(b'{"op": "status"}\n', 10.0))["status"]["supervisor"]
    before, until = _memory(pid), time.monotonic() + seconds
    while result.cases < cases and time.monotonic() < until and not honest.failed:
        result.cases += 1
        line = as_json(chance, chance.choice(_REQUESTS))
        if b'"stop"' in line:
            continue
        with contextlib.suppress(OSError):
            ask(line + chance.choice((b"\n", b"\n", b"\n", b"", b"\n\n{}\n", b"\n[]\n", b"\n7\n")), 0.02)
        with contextlib.suppress(OSError):
            result.growth = max(result.growth, _memory(pid) - before)
    _judge(result, honest, Path(f"/proc/{pid}").exists(), seed, gap)
