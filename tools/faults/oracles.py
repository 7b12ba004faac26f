"""What must be true whatever happened: what was called durable is there, once, whole and in its order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from callsheet.errors import CallsheetError
from callsheet.runtime.replay.restoring import restore
from callsheet.store import Store, latest, open_store
from tools.faults.learner import CHECKPOINTS
from tools.faults.programs import TABLE

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
            found[writer, life] = max(last, found.get((writer, life), 0))
    return found


def check_replay(folder: Path, storage: str, writers: Iterable[int], shard: int = 0) -> dict[str, int]:
    """The shard's newest snapshot has the newest of all that was called durable, each item once and in order."""
    writers = list(writers)
    told = promised(folder, "replay", writers)  # before the snapshot is read: later ones have more
    numbers = {(w, life, n): s for w in writers for life, s, n in lines(folder / f"replay-sent-{w}")}
    rows = _rows(open_store(storage).sub(f"checkpoints/replay-{shard}/replay"))
    found: dict[Life, list[int]] = {}
    for writer, life, number in rows:
        found.setdefault((writer, life), []).append(numbers.get((writer, life, number), number))
    for key, sequences in found.items():
        expected = list(range(sequences[0], sequences[0] + len(sequences)))
        assert sequences == expected, f"{key}: not {expected[0]} to {expected[-1]} once and in order"
        # Items make room for newer ones, the oldest first: only when the table is full does one lack its beginning.
        assert sequences[0] == 1 or len(rows) >= TABLE.items, f"{key} begins with {sequences[0]}"
    for key, last in told.items():
        if key in found:
            assert found[key][-1] >= last, f"{key}: {last} is durable, {found[key][-1]} is there"
        else:
            assert len(rows) >= TABLE.items, f"{key}: {last} items are durable, none is there"
    return {"promised": sum(told.values()), "stored": len(rows)}


def _rows(store: Store) -> list[list[int]]:
    for attempt in range(20):  # what is read may be removed meanwhile by its writer, who has a newer one
        try:
            table = restore(store, [TABLE])["replay"].service.table
            break
        except CallsheetError:
            if attempt == 19:
                raise
    slots = np.arange(table.first, table.ring.next) % table.ring.slots
    ids, xs = table.ring.arrays["id"][slots], table.ring.arrays["x"][slots]
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
