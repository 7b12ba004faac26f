"""What must be true whatever happened: what was called durable is there, once, whole and in its order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from callsheet.errors import CallsheetError
from callsheet.runtime.replay.server.snapshot_restore import restore
from callsheet.store import Store, latest, open_store
from tools.faults.learner import CHECKPOINTS
from tools.faults.programs import ITEMS, table

Life = tuple[int, int]
"""Which writer, and which start of it."""


def lines(path: Path) -> list[list[int]]:
    """The whole lines of a log: a process may have been killed in the middle of the last."""
    if not path.exists():
        return []
    whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [[int(word) for word in line.split()] for line in whole]


def promised(folder: Path, service: str, writers: Iterable[int]) -> dict[Life, int]:
    """What each writer was told to be durable, up to which sequence."""
    found: dict[Life, int] = {}
    for writer in writers:
        for life, last in lines(folder / f"{service}-durable-{writer}"):
            found[writer, life] = max(
                last, found.pop((writer, life), 0)
            )  # the one that was told of last comes last
    return found


def check_replay(folder: Path, storage: str, writers: Iterable[int], items: int = ITEMS) -> dict[str, int]:
    """The shard's newest snapshot has the newest of all that was called durable, each item once and in order."""
    writers = list(writers)
    told = promised(folder, "replay", writers)  # before the snapshot is read: later ones have more
    rows = _rows(open_store(storage).sub("checkpoints/replay-0/replay"), items)
    found: dict[Life, list[int]] = {}
    for writer, life, number in rows:
        found.setdefault((writer, life), []).append(number)
    # Items make room for newer ones, the oldest first. A snapshot may lack a few more: those that made room meanwhile.
    all_fit = sum(told.values()) < 0.9 * items
    for key, numbers in found.items():
        expected = list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers == expected, f"{key}: not {expected[0]} to {expected[-1]} once and in order"
        assert numbers[0] == 1 or not all_fit, f"{key} begins with {numbers[0]}"
    latest_lives = dict(told.keys())
    for key, last in told.items():
        if key in found:
            assert found[key][-1] >= last, f"{key}: {last} is durable, {found[key][-1]} is there"
        else:
            made_room = not all_fit and latest_lives[key[0]] != key[1]
            assert made_room, f"{key}: {last} items are durable, none is there"
    return {"promised": sum(told.values()), "stored": len(rows)}


def _rows(store: Store, items: int) -> list[list[int]]:
    for attempt in range(20):  # what is read may be removed meanwhile by its writer, who has a newer one
        try:
            found = restore(store, [table(items)])["replay"].service.table
            break
        except CallsheetError:
            if attempt == 19:
                raise
    slots = np.arange(found.first, found.ring.next) % found.ring.slots
    ids, xs = found.ring.arrays["id"][slots], found.ring.arrays["x"][slots]
    assert (xs == ids[:, 2:]).all(), "a torn item in a snapshot"
    rows: list[list[int]] = ids.tolist()
    return rows


def check_learner(folder: Path, storage: str, writers: Iterable[int]) -> dict[str, int]:
    """The newest checkpoint has seen all that was called durable (each once: the learner looks at that itself)."""
    told = promised(folder, "trajectories", writers)
    found = latest(open_store(storage).sub(CHECKPOINTS))
    assert found is not None, "there is no checkpoint"
    found.verify()
    seen = {(who, life): last for who, marks in found.info["seen"].items() for life, last in marks}
    for (writer, life), last in told.items():
        has = seen.get((f"actor/{writer}/actor", life), 0)
        assert has >= last, f"actor {writer}, {life}: {last} rollouts are durable, {has} are there"
    return {"promised": sum(told.values()), "stored": sum(seen.values())}


def check_evaluations(folder: Path, storage: str) -> dict[str, int]:
    """Every verdict that the learner got has its result in the store."""
    store = open_store(storage)
    verdicts = (folder / "verdicts").read_text().splitlines() if (folder / "verdicts").exists() else []
    for line in verdicts:
        version, mean = line.split()
        told = json.loads(store.get(f"evaluations/{int(version):012d}.json"))
        assert told == {"version": int(version), "mean": float(mean)}, told
    return {"verdicts": len(verdicts)}
