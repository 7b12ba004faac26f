"""What trajectories may cost: memory that is bounded whatever the number of writers, and the same for the millionth item."""

from __future__ import annotations

import os
import threading
import tracemalloc
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from trajectory_peers import context, item, numbers, reading, writing
from trajectory_programs import flood, start, take_large, telling

from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.schema import Schema
from callsheet.runtime.trajectories import TrajectoryWriter

MEGABYTE = 1 << 20


@pytest.fixture(params=["memory", "network"])
def carrier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def in_use() -> int:
    """Bytes of memory that this process takes from the machine, shared pages once."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def test_a_hundred_writers_and_a_slow_reader_hold_no_more_memory_than_their_windows(carrier: str) -> None:
    window, size, count = 2, 256 * 1024, 100
    arrays = {"x": np.zeros(size, "u1")}
    bound = count * window * size
    if carrier == "network":
        bound *= 3  # in the sender's block, on its way, and received but not read
    with ExitStack() as stack:
        reader = stack.enter_context(reading(carrier, window=window))
        writers = []
        for index in range(count):
            ctx = stack.enter_context(context(carrier, reader.address, role="actor", index=index))
            writer = TrajectoryWriter(ctx, "t", Schema.of(arrays), window=window)
            stack.callback(writer.close, 0)
            writers.append(writer)
        threads = [threading.Thread(target=writer.connect, args=(60,)) for writer in writers]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            with pytest.raises(TimedOut):
                reader.read(1, timeout=0.01)
        before = in_use()

        def press() -> int:
            written = 0
            for writer in writers:
                for _ in range(3 * window):
                    try:
                        writer.write(arrays, timeout=0)
                        written += 1
                    except TimedOut:
                        break
            return written

        assert press() == count * window, "each writer waits after its window"
        reader.read(1, timeout=10)
        for _ in range(3):
            press()
        held = in_use() - before
        assert held < bound + 48 * MEGABYTE, f"{held / MEGABYTE:.0f} MiB for {bound / MEGABYTE:.0f}"
        assert reader.counts()["waiting"] <= count * window
        for _ in range(5):  # read on: the bound holds while items flow
            reader.read(50, timeout=10)
            press()
        assert in_use() - before < bound + 48 * MEGABYTE


def test_the_millionth_item_costs_no_more_memory_than_the_first(carrier: str) -> None:
    with reading(carrier, max_policy_lag=3) as reader:
        writer = start(flood, carrier, reader.address)
        try:
            for _ in range(50):
                reader.read(1000, timeout=30)
            tracemalloc.start()
            for _ in range(20):
                reader.read(1000, timeout=30)
            begin, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            for _ in range(1000):
                reader.read(1000, timeout=30)
            end, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            writer.kill()
            writer.join(10)
        assert reader.counts()["items"] >= 1_000_000
        assert end - begin < 64 * 1024
        assert peak - begin < 2 * MEGABYTE


def test_descriptors_do_not_add_up(carrier: str) -> None:
    with reading(carrier) as reader:
        counts = []
        for turn in range(6):
            with writing(carrier, reader.address, lambda writer: writer.write(item(1)), index=turn % 2):
                assert numbers(reader.read(1, timeout=10)) == [1]
            while reader.counts()["writers"]:
                with pytest.raises(TimedOut):
                    reader.read(1, timeout=0.02)
            counts.append(len(os.listdir("/proc/self/fd")))
        assert max(counts[3:]) <= max(counts[:3]), "each start and end leaves what it found"


def test_large_items_come_by_the_network_into_memory_that_the_process_already_has() -> None:
    """glibc would give a message's memory back and ask for it again, some 40 of 128 pages for each item."""
    told = telling()
    told[0] = -1
    start(take_large, "network", told).join(60)
    assert 0 <= told[0] < 8
