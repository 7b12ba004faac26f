"""The machine's clock may jump: nothing that Callsheet waits for depends on it."""

from __future__ import annotations

from pathlib import Path

import libfaketime
import pytest
from local_runs import experiment, kill, program, replica, running, until, until_running

LIBRARY = Path(libfaketime.__file__).parent / "vendor/libfaketime/src/libfaketime.so.1"


def test_a_clock_that_jumps_neither_ends_nor_stalls_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = folder / "clock"
    clock.write_text("+0")
    exp = experiment(
        {"name": "actor", "replicas": 2, "command": program("patient.py")}, lifecycle={"deadline": "1h"}
    )
    monkeypatch.setenv("LD_PRELOAD", str(LIBRARY))
    monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(clock))
    monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
    monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    with running(exp, folder) as run:
        created = until_running(run).created
        for jump in ("+2d", "-3d"):
            clock.write_text(jump)
            attempt = replica(run.status(), "actor/0").attempt
            kill(run.status(), "actor/0")
            status = until(
                run, lambda s, n=attempt: replica(s, "actor/0").attempt > n and s.roles[0].ready == 2
            )
            assert status.phase == "Running"
            assert 0 <= status.uptime < 60
            assert all(0 <= r.uptime < 60 for r in status.replicas)
        started = replica(status, "actor/0").started
        assert started < created - 86400, "the clock did jump for the supervisor"
        run.stop()
        assert run.wait(10).phase == "Stopped"
