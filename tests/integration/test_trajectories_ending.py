"""How writers end when their reader has ended before them."""

from __future__ import annotations

import logging
import threading

import pytest
from trajectory_peers import context, item, writing

from callsheet.runtime.trajectories import TrajectoryReader, TrajectoryWriter


@pytest.mark.parametrize("asked", [True, False])
def test_rollouts_that_were_on_their_way_when_both_sides_ended_are_counted_and_not_complained_about(
    asked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The learner ends, then the actors are asked to: nobody misses what they were just playing."""
    filling, gone = threading.Event(), threading.Event()

    def work(writer: TrajectoryWriter) -> None:
        writer.write(item(0), timeout=10)
        with writer.rollout(timeout=10) as arrays:
            arrays["action"][:] = 1
            filling.set()
            assert gone.wait(10)
        if asked:
            writer._context.stop.set()
        writer.close(timeout=0.2)
        # The first one counts too where the reader had no time to say that it has it.
        assert writer.counts()["dropped"] in (1, 2)

    with context("memory", role="learner") as learner, caplog.at_level(logging.WARNING):
        reader = TrajectoryReader(learner, "t")
        with writing("memory", reader.address, work) as writer:
            reader.read(1, timeout=10)
            assert filling.wait(10)
            reader.close()
            gone.set()
            writer.join(10)
            assert not writer.is_alive()
    assert ("were dropped" in caplog.text) is not asked
