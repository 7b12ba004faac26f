"""Shards, writers and learners of a replay that are killed at any moment: nothing durable is lost, nothing is double."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from free_ports import free_address
from local_runs import eventually
from replay_programs import TABLE, learn, serve, start, write

from callsheet.runtime.replay.server.snapshot_restore import restore
from callsheet.store import open_store

KILLS = 200


@pytest.fixture
def members() -> Iterator[dict[str, Any]]:
    """Processes of the test; none is left after it."""
    found: dict[str, Any] = {}
    yield found
    for process in found.values():
        process.kill()
        process.join(10)


def stored(folder: Path, index: int) -> list[tuple[int, int, int]]:
    """The items of a shard's last snapshot."""
    store = open_store(folder).sub(f"checkpoints/replay-{index}/replay")
    table = restore(store, [TABLE])["replay"].service.table
    slots = np.arange(table.first, table.ring.next) % table.ring.slots
    assert (table.ring.arrays["x"][slots] == table.ring.arrays["id"][slots][:, 2:]).all()
    return [tuple(row) for row in table.ring.arrays["id"][slots].tolist()]


def read_log(path: Path) -> list[list[str]]:
    """Whole lines: a writer may have been killed in the middle of the last."""
    return [line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def durable_items(folder: Path, address: str) -> dict[tuple[int, int], int]:
    """How many items of each writer, and of each of its starts, a shard has called durable."""
    found: dict[tuple[int, int], int] = {}
    for who in range(3):
        for place, incarnation, last in read_log(folder / f"durable-{who}"):
            if place == address:
                found[who, int(incarnation)] = max(int(last), found.get((who, int(incarnation)), 0))
    return found


@pytest.mark.exclusive
def test_two_hundred_kills_lose_nothing_and_double_nothing(tmp_path: Path, members: dict[str, Any]) -> None:
    chance = random.Random(5)
    addresses = [free_address(), free_address()]
    everyone = ",".join(addresses)

    def shard(index: int) -> Callable[[], Any]:
        return lambda: start(serve, addresses[index], index, str(tmp_path), 0.2)

    def writer(index: int) -> Callable[[], Any]:
        return lambda: start(write, chance.choice(["memory", "encrypted"]), everyone, index, str(tmp_path))

    def learner() -> Any:
        return start(learn, chance.choice(["memory", "encrypted"]), everyone, str(tmp_path))

    makers: dict[str, Callable[[], Any]] = {f"shard {index}": shard(index) for index in range(2)}
    makers |= {f"writer {index}": writer(index) for index in range(3)}
    makers["learner"] = learner
    for name, make in makers.items():
        members[name] = make()
    for _ in range(KILLS // 2):
        time.sleep(chance.uniform(0.02, 0.2))
        pair = chance.sample(list(makers), 2)
        for name in pair:
            assert members[name].is_alive(), f"{name} ended by itself"
            os.kill(members[name].pid, signal.SIGKILL)
        for name in pair:
            members[name].join(10)
            members[name] = makers[name]()
    eventually(
        lambda: sum(sum(durable_items(tmp_path, address).values()) for address in addresses) > 1000, 120
    )
    (tmp_path / "finish").touch()
    for index in range(3):
        members[f"writer {index}"].join(40)
        assert members[f"writer {index}"].exitcode == 0
    for index in range(2):
        os.kill(members[f"shard {index}"].pid, signal.SIGTERM)
        members[f"shard {index}"].join(20)
        assert members[f"shard {index}"].exitcode == 143
    assert not (tmp_path / "torn").exists()

    total = 0
    for index, address in enumerate(addresses):
        items = stored(tmp_path, index)
        total += len(items)
        found: dict[tuple[int, int], list[int]] = {}
        for who, incarnation, number in items:
            found.setdefault((who, incarnation), []).append(number)
        for numbers in found.values():
            assert numbers == sorted(set(numbers)), "an item is there twice, or out of order"
        durable = durable_items(tmp_path, address)
        assert {key: len(numbers) for key, numbers in found.items()} == durable
        for who in range(3):
            for place, incarnation, sequence, number in read_log(tmp_path / f"sent-{who}"):
                last = durable.get((who, int(incarnation)), 0)
                if place == address and int(sequence) <= last:
                    assert found[who, int(incarnation)][int(sequence) - 1] == int(number)
    print(f"\n{KILLS} kills, {total:,} items stored")
    assert total > 1000
