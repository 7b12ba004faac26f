"""A simulator that dies, fails or hangs is started again and counted; its partial episode is given up, nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_runs import PROGRAMS

from callsheet.errors import RetryError, UserError
from callsheet.rl.envs import Environments, make

PATIENCE = 30.0
FINE, BAD = np.zeros(2, np.int64), np.array([0, 3])


@pytest.fixture(autouse=True)
def simulators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROGRAMS))


@pytest.fixture
def failing() -> Iterator[Callable[..., Environments]]:
    """Two environments in two processes, closed when the test is over."""
    made: list[Environments] = []

    def start(env: str = "simulators:Failing", *, step_timeout: float = 60, **options: Any) -> Environments:
        made.append(
            make(
                env,
                2,
                seed=1,
                options=options,
                step_timeout=step_timeout,
                start_timeout=PATIENCE,
                processes=2,
            )
        )
        return made[-1]

    yield start
    for environments in made:
        environments.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(*pids: int) -> bool:
    limit = time.monotonic() + PATIENCE
    while any(map(alive, pids)) and time.monotonic() < limit:
        time.sleep(0.02)  # polls processes that are not ours to wait for
    return not any(map(alive, pids))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("exit", "exited with code 1"),
        ("crash", "was killed by SIGSEGV"),
        ("raise", "RuntimeError: the simulator lost its wheels"),
        ("hang", "took too long"),
        ("hang deaf", "took too long"),
    ],
)
def test_a_bad_simulator_is_replaced_and_its_neighbor_goes_on(
    how: str, says: str, failing: Callable[..., Environments], caplog: pytest.LogCaptureFixture
) -> None:
    envs = failing(how=how, step_timeout=2.5 if "hang" in how else 60)
    envs.reset()
    envs.step(FINE)
    step = envs.step(BAD)
    assert step.broken.tolist() == [False, True]
    # The lost episode neither ended nor was cut: it is dropped. A new one has begun in its place.
    assert step.terminated.tolist() == step.truncated.tolist() == [False, False]
    assert step.first.tolist() == [False, True]
    assert step.valid.tolist() == [True, False]
    assert step.observations["observation"].tolist() == [[0, 2], [0, 0]]
    assert envs.restarts == 1
    assert says in caplog.text
    after = envs.step(FINE)
    assert after.observations["observation"].tolist() == [[0, 3], [0, 1]]
    assert after.valid.all()
    assert not after.broken.any()


def test_environments_of_one_process_are_lost_together() -> None:
    envs = make("simulators:Failing", 4, seed=1, options={"how": "exit"}, processes=2)
    try:
        envs.reset()
        assert envs.step(np.array([0, 0, 0, 3])).broken.tolist() == [False, False, True, True]
        assert envs.restarts == 1
    finally:
        envs.close()


def test_a_simulator_that_dies_in_a_reset_is_replaced_too(
    tmp_path: Path, failing: Callable[..., Environments]
) -> None:
    envs = failing(how="hang", where="step", step_timeout=60)
    envs.reset()
    os.kill(children()[0], signal.SIGKILL)
    assert envs.reset(5)["observation"].tolist()[0] == [0, 0]
    assert envs.restarts == 1
    assert not envs.step(FINE).broken.any()


def test_a_simulator_that_needs_a_second_start_gets_it(
    tmp_path: Path, failing: Callable[..., Environments]
) -> None:
    marker = tmp_path / "failed"
    marker.touch()
    envs = failing(how="exit", where="start", once=str(marker))
    envs.reset()
    marker.unlink()  # the next start fails, and the one after does not
    os.kill(children()[1], signal.SIGKILL)
    assert envs.step(FINE).broken.sum() == 1
    assert envs.restarts == 2
    assert not envs.step(FINE).broken.any()


def test_a_simulator_that_never_gets_anywhere_is_given_up_with_its_reason(
    failing: Callable[..., Environments],
) -> None:
    envs = failing(how="exit")
    envs.reset()
    for _ in range(5):
        assert envs.step(BAD).broken.tolist() == [False, True]
    with pytest.raises(RetryError, match=r"5 times without a single step: .* exited with code 1"):
        envs.step(BAD)
    assert envs.restarts == 5


@pytest.mark.parametrize(
    ("how", "says"),
    [("exit", "exited with code 1"), ("raise", "lost its wheels"), ("hang", "took too long")],
)
def test_one_that_cannot_be_started_at_all_is_told_at_once(how: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        make(
            "simulators:Failing",
            2,
            seed=0,
            options={"how": how, "where": "start"},
            start_timeout=3 if how == "hang" else PATIENCE,
        )
    assert "could not be started" in raised.value.message
    assert not children()


def test_errors_of_environments_in_this_process_come_through_as_they_are() -> None:
    envs = make("simulators:Failing", 2, seed=0, options={"how": "raise"}, isolate=False)
    envs.reset()
    with pytest.raises(RuntimeError, match="lost its wheels"):
        envs.step(BAD)


def test_helpers_of_a_simulator_are_killed_with_it(tmp_path: Path) -> None:
    note = tmp_path / "helper"
    envs = make("simulators:WithHelper", 1, seed=0, options={"helper": str(note)}, step_timeout=1)
    try:
        helper = int(note.read_text())
        envs.reset()
        assert alive(helper)
        assert envs.step(np.array([3])).broken.all()
        assert gone(helper)
    finally:
        envs.close()
    assert gone(int(note.read_text()))


def test_nothing_is_left_when_its_owner_is_killed_even_if_a_simulator_hangs(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import numpy as np; from callsheet.rl.envs import make\n"
            "envs = make('simulators:Failing', 2, seed=0, options={'how': 'hang deaf'}, processes=2)\n"
            "envs.reset(); print('ready', flush=True); envs.step(np.array([0, 3]))",
        ],
        env=os.environ | {"PYTHONPATH": str(PROGRAMS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    with owner.stdout:
        assert owner.stdout.readline() == "ready\n"
    workers = children(owner.pid)
    assert len(workers) == 2
    owner.kill()
    owner.wait()
    assert gone(*workers)


def test_closing_ends_every_process(failing: Callable[..., Environments]) -> None:
    envs = failing(how="exit")
    workers = children()
    assert len(workers) == 2
    envs.close()
    assert not any(map(alive, workers))


def children(pid: int | None = None) -> list[int]:
    """The processes that a process has started, oldest first."""
    parent = pid or os.getpid()
    listed = "".join(path.read_text() for path in Path(f"/proc/{parent}/task").glob("*/children"))
    return sorted(
        child
        for child in map(int, listed.split())
        if b"callsheet.rl.envs" in Path(f"/proc/{child}/cmdline").read_bytes()
    )
