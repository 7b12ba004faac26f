"""Writers and readers that are killed, stopped and started again, as real processes."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from free_ports import free_address
from trajectory_programs import (
    FIRST,
    ITEMS,
    STARTED,
    WRITERS,
    WRONG,
    act,
    act_durably,
    learn,
    learn_durably,
    start,
    stored_and_promised,
    telling,
)

SMALL, LARGE = 64, 1 << 17


@pytest.fixture(params=["memory", "network"])
def carrier(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def processes() -> Iterator[list[Any]]:
    """Processes of the test; none is left after it."""
    found: list[Any] = []
    yield found
    for process in found:
        process.kill()
        process.join(10)


@pytest.fixture
def address() -> str:
    return free_address()


def wait(what: Callable[[], bool], patience: float = 30) -> None:
    """Until something is so."""
    until = time.monotonic() + patience
    while not what():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.005)


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_a_killed_writer_leaves_whole_items_and_a_reader_that_goes_on(
    carrier: str, size: int, processes: list[Any], address: str
) -> None:
    told = telling()
    processes.append(start(learn, carrier, address, told))
    steady = start(act, carrier, address, 0, size)
    processes.append(steady)
    for _ in range(5):
        victim = start(act, carrier, address, 1, size)
        processes.append(victim)
        before = told[ITEMS]
        wait(lambda before=before: told[WRITERS] >= 2 and told[ITEMS] > before + 50)
        victim.kill()
        victim.join(10)
    before = told[ITEMS]
    wait(lambda: told[ITEMS] > before + 100)
    assert told[WRONG] == 0


@pytest.mark.exclusive
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["small", "large"])
def test_writers_go_on_within_two_seconds_when_a_killed_reader_is_back(
    carrier: str, size: int, processes: list[Any], address: str
) -> None:
    told = telling()
    reader = start(learn, carrier, address, told)
    processes += [reader, *(start(act, carrier, address, index, size) for index in range(3))]
    wait(lambda: told[WRITERS] == 3)
    for _ in range(3):
        reader.kill()
        reader.join(10)
        told = telling()
        reader = start(learn, carrier, address, told)
        processes.append(reader)
        wait(lambda told=told: told[WRITERS] == 3)
        took = time.monotonic() - told[STARTED]
        assert took < 2, f"all three writers were back after {took:.2f} s"
        print(f"first item after {told[FIRST] - told[STARTED]:.3f} s, all writers after {took:.3f} s")
        assert told[WRONG] == 0


@pytest.mark.exclusive
def test_a_process_that_is_stopped_for_ten_seconds_takes_part_again(processes: list[Any]) -> None:
    pairs = []
    for carrier in ("memory", "network"):
        for who in ("writer", "reader"):
            place = free_address()
            told = telling()
            reader = start(learn, carrier, place, told)
            writers = [start(act, carrier, place, index, SMALL) for index in range(2)]
            processes += [reader, *writers]
            pairs.append((told, writers[0] if who == "writer" else reader, who))
    for told, _, _ in pairs:
        wait(lambda told=told: told[WRITERS] == 2)
    for _, victim, _ in pairs:
        os.kill(victim.pid, signal.SIGSTOP)
    before = [told[ITEMS] for told, _, _ in pairs]
    time.sleep(10)
    for (told, victim, who), count in zip(pairs, before, strict=True):
        assert (told[ITEMS] > count + 1000) == (who == "writer"), (
            "the other writer goes on, a stopped reader not"
        )
        os.kill(victim.pid, signal.SIGCONT)
    for told, _, _ in pairs:
        again = told[ITEMS]
        wait(lambda told=told, again=again: told[ITEMS] > again + 1000)
        assert told[WRONG] == 0, "nothing lost, nothing twice, nothing torn"


@pytest.mark.exclusive
def test_nothing_durable_is_lost_or_doubled_by_two_hundred_kills(
    carrier: str, processes: list[Any], address: str, tmp_path: Path
) -> None:
    chance = random.Random(5)
    folder = str(tmp_path)
    actors = 3

    def begin(which: int) -> Any:
        if which == actors:
            process = start(learn_durably, carrier, address, folder)
        else:
            process = start(act_durably, carrier, address, which, folder)
        processes.append(process)
        return process

    alive = [begin(which) for which in range(actors + 1)]
    for _ in range(100):
        time.sleep(chance.uniform(0, 0.15))
        pair = chance.sample(range(actors + 1), 2)
        for which in pair:
            alive[which].kill()
        for which in pair:
            alive[which].join(10)
            assert alive[which].exitcode == -signal.SIGKILL, "it had ended by itself"
            alive[which] = begin(which)
    wait(lambda: 16 * len(list(tmp_path.glob("batch-*"))) > 1000, 120)
    (tmp_path / "finish").touch()
    for actor in alive[:actors]:
        actor.join(40)
        assert actor.exitcode == 0
    alive[actors].terminate()
    alive[actors].join(10)
    assert alive[actors].exitcode == 143

    stored, promised = stored_and_promised(tmp_path, actors)
    assert len(stored) == len(set(stored)), "nothing twice"
    assert set(stored) == promised
    print(f"\n{len(promised):,} items are durable")
    assert len(promised) > 1000
