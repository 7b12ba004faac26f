"""A peer that dies and does not come back: every wait for it ends when it should, and costs next to nothing meanwhile."""

from __future__ import annotations

import time

import pytest
from blocking_calls import WAITS, run
from blocking_process import FORKS, STOPPED, TIMEOUT, Result

_CASES = [
    ("memory", "timeout"),
    ("memory", "stop"),
    ("network", "timeout"),
    ("network", "stop"),
    ("encrypted", "timeout"),
]
_LATE = 2.0
"""Seconds that a loaded machine may add."""
_BUSY = 0.3
"""Seconds of CPU that a wait of a second may cost: one that spins costs all that it gets."""


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_for_a_peer_that_died_ends_in_time_and_leaves_the_processor_alone(name: str) -> None:
    running = {}
    for kind, how in _CASES:
        ours, theirs = FORKS.Pipe(duplex=False)
        process = FORKS.Process(target=run, args=(name, kind, how, theirs))
        process.start()
        theirs.close()
        running[kind, how] = (process, ours)
    wait, wrong, end = WAITS[name], [], time.monotonic() + 30
    for (kind, how), (process, ours) in running.items():
        found: Result | str
        try:
            found = ours.recv() if ours.poll(max(0.0, end - time.monotonic())) else "it did not end"
        except EOFError:
            found = "it broke"
        process.kill()
        process.join()
        ours.close()
        print(kind, how, found)
        outcome = wait.timed_out if how == "timeout" else wait.stopped
        usual = TIMEOUT if how == "timeout" else STOPPED + wait.longer
        if (
            not isinstance(found, Result)
            or found.outcome != outcome
            or not (wait.at_once or found.seconds > 0.9 * min(usual, STOPPED))
            or found.seconds > usual + _LATE
            or found.cpu > _BUSY
        ):
            wrong.append((kind, how, found))
    assert not wrong
