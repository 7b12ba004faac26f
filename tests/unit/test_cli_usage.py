"""Processor and memory of replicas, from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callsheet.cli.follow import usage

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def test_a_busy_replica_and_its_children_are_counted_together() -> None:
    # A shell in a session of its own whose child does the work, as a replica with a helper would be.
    work = "import sys; x = bytearray(30_000_000); print(flush=True); [0 for _ in iter(int, 1)]"
    command = f"{sys.executable} -c '{work}'; true"
    shell = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert shell.stdout is not None
        shell.stdout.readline()
        sampler = usage.Sampler()
        sampler.sample({"actor": [shell.pid]})
        cpu = 0.0
        limit = time.monotonic() + 10
        while time.monotonic() < limit:
            found = sampler.sample({"actor": [shell.pid], "gone": [2**22 + 1]})
            cpu = max(cpu, found["actor"].cpu)
            if cpu > 0:
                break
        assert cpu > 0
        assert found["actor"].memory > 30_000_000
        assert "gone" not in found
    finally:
        os.killpg(shell.pid, 9)
        shell.communicate()


def test_a_system_without_proc_gives_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(usage, "PROC", str(tmp_path / "nowhere"))
    assert usage.Sampler().sample({"actor": [os.getpid()]}) == {}
