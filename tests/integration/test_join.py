"""Many actors that join one learner at once, as they do when it starts again: all of them come in, and soon."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event

import numpy as np
import pytest
from data_plane_servers import context
from free_ports import free_ports

from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.trajectories import TrajectoryReader, TrajectoryWriter

PROCESSES = 8


def _act(carrier: str, address: str, first: int, count: int, stop: Event) -> None:
    threading.stack_size(256 * 1024)

    def act(index: int) -> None:
        ctx = context(carrier, "actor", address, index)
        writer = TrajectoryWriter(ctx, "e")
        while True:
            writer.write({"index": np.int64(index)})
            writer.flush()
            ctx.sleep(2)

    for index in range(first, first + count):
        threading.Thread(target=act, args=(index,), daemon=True).start()
    stop.wait()
    os._exit(0)  # the actors wait for a reader that is gone, and would do so for a while


@contextmanager
def actors(carrier: str, address: str, count: int) -> Iterator[None]:
    """So many actors, as threads of a few processes."""
    fork = multiprocessing.get_context("fork")
    stop = fork.Event()
    share = count // PROCESSES
    crews = [
        fork.Process(target=_act, args=(carrier, address, number * share, share, stop), daemon=True)
        for number in range(PROCESSES)
    ]
    for crew in crews:
        crew.start()
    try:
        yield
    finally:
        stop.set()
        for crew in crews:
            crew.join()


def all_joined(reader: TrajectoryReader, count: int, within: float) -> None:
    """Read until every actor was heard."""
    heard: set[int] = set()
    over = time.monotonic() + within
    while len(heard) < count:
        assert time.monotonic() < over, f"{len(heard)} of {count} actors joined"
        with suppress(TimedOut):
            heard.update(reader.read(1, timeout=1)["index"].tolist())


@pytest.mark.exclusive
@pytest.mark.parametrize("carrier", ["encrypted", "memory"])
def test_a_thousand_actors_join_within_thirty_seconds_also_a_learner_that_starts_again(carrier: str) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with actors(carrier, address, 1024):
        for _ in range(2):
            with context(carrier, "learner", address) as ctx, TrajectoryReader(ctx, "e") as reader:
                all_joined(reader, 1024, within=30)


@pytest.mark.parametrize("carrier", ["encrypted", "memory"])
def test_actors_wait_for_a_busy_learner_and_do_not_start_over(carrier: str) -> None:
    """A learner that looks once a second has said hello to everyone before anybody gives up."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        actors(carrier, address, 64),
        context(carrier, "learner", address) as ctx,
        TrajectoryReader(ctx, "e") as reader,
    ):
        time.sleep(4)  # longer than a handshake was given once: all of them knock, and nobody answers
        while len(reader.writers) < 64 or reader.counts()["writers"] < 64:
            reader.read(1, timeout=30)
        assert reader.counts()["hellos"] == 64
