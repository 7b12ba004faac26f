"""Helpers for tests that run real processes: make an experiment, start it, inspect it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from callsheet.backends.base import LogQuery, ReplicaStatus, Status, Target, backend
from callsheet.backends.local.client import LocalRun
from callsheet.backends.local.supervisor import procfs
from callsheet.plan.check import check_experiment
from callsheet.spec.experiment import Experiment

T = TypeVar("T")
PYTHON = sys.executable
PROGRAMS = Path(__file__).parent.parent / "programs"


def program(name: str, *arguments: str) -> list[str]:
    """The command of one of the small programs in tests/programs."""
    return [PYTHON, str(PROGRAMS / name), *arguments]


def python(code: str, *arguments: str) -> list[str]:
    """The command of a few lines of Python, without the interpreter's slow start."""
    return [PYTHON, "-I", "-S", "-u", "-c", code, *arguments]


def experiment(*roles: dict[str, Any], name: str = "exp", **spec: Any) -> Experiment:
    """A checked experiment of these roles."""
    data = {"metadata": {"name": name}, "spec": {"roles": list(roles), **spec}}
    made = Experiment.model_validate(data)
    problems = check_experiment(made)
    assert not problems, problems
    return made


@contextmanager
def running(exp: Experiment, folder: Path, *, detach: bool = True) -> Iterator[LocalRun]:
    """A run that is surely over when the test is."""
    run = backend("local").start(exp, base=folder, detach=detach)
    assert isinstance(run, LocalRun)
    try:
        yield run
    finally:
        run.stop(kill=True)
        run.wait(20)


def eventually(look: Callable[[], T], within: float = 30.0) -> T:
    """The first truthy answer; fails with the last one."""
    limit = time.monotonic() + within
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < limit, f"not within {within} s: {answer!r}"
        time.sleep(0.02)  # the one place of these tests that polls


def kill(status: Status, name: str, number: int = signal.SIGKILL) -> int:
    """End a replica's main process as a fault would; the number that it had."""
    pid = replica(status, name).containers[0].pid
    assert pid, f"{name} does not run"  # 0 would mean ourselves
    os.kill(pid, number)
    return pid


def until(run: LocalRun, wanted: Callable[[Status], object], within: float = 60.0) -> Status:
    """The first status that fits."""
    limit = time.monotonic() + within
    for status in run.watch(0.1):
        if wanted(status):
            return status
        assert time.monotonic() < limit, status
    raise AssertionError(f"the run ended first: {status}")


def until_running(run: LocalRun) -> Status:
    return until(run, lambda status: status.phase == "Running")


def until_all_spoke(run: LocalRun, role: str = "") -> Status:
    """Every container (of a role) has written something: the programs are past their start."""

    def spoke(status: Status) -> bool:
        chosen = [r for r in status.replicas if role in ("", r.role)]
        return all(c.last_line for r in chosen for c in r.containers)

    return until(run, spoke)


def replica(status: Status, name: str) -> ReplicaStatus:
    return next(r for r in status.replicas if r.name == name)


def lines(run: LocalRun, target: str) -> list[str]:
    return [line.text for line in run.logs(LogQuery(targets=[Target.parse(target)]))]


def processes_of(run: LocalRun) -> Sequence[int]:
    return procfs.find_processes(procfs.identity(run.id))


def is_gone(pid: int) -> bool:
    return not os.path.exists(f"/proc/{pid}") or procfs.is_zombie(pid)
