"""The cells of the data plane: its processes, their connections and their store."""

from __future__ import annotations

from tools.faults import measures as m
from tools.faults import oversize
from tools.faults.matrix import Cell, Key
from tools.faults.scenes import NAMES
from tools.faults.storeproxy import StoreScript

NOTHING_LOST = "Nothing durable is lost or duplicated."
STORES = ("learner", "replay shard", "evaluator")
"""Those who write to the storage."""
SERVERS_WITHOUT_STORE = ("actor", "parameter server", "policy server")
_KEEPS = {
    "actor": f"{NOTHING_LOST} The other actor is not affected.",
    "learner": NOTHING_LOST,
    "replay shard": f"{NOTHING_LOST} Samples are complete.",
    "parameter server": "Readers get complete snapshots, never an older one from the same publisher.",
    "policy server": "No request is lost or computed twice.",
    "evaluator": "Every evaluation has its result in the store. Other parameter readers are not affected.",
}
QUICK = {
    ("kill", "actor"),
    ("kill", "learner"),
    ("kill", "replay shard"),
    ("kill", "policy server"),
    ("lease", "learner"),
    ("lease", "replay shard"),
    ("cut", "replay shard"),
    ("cut", "policy server"),
    ("corrupt", "learner"),
    ("corrupt", "parameter server"),
    ("slow", "actor"),
    ("full-disk", "replay shard"),
    ("read-only", "learner"),
    ("s3-500", "learner"),
    ("s3-503", "replay shard"),
    ("clock", "learner"),
    ("memory", "replay shard"),
    ("key", "actor"),
    ("schema", "actor"),
    ("oversize", "actor"),
    ("oversize", "parameter server"),
}


def cells() -> dict[Key, Cell]:
    """Of the victims that are processes of the data plane."""
    found: dict[Key, Cell] = {}
    for victim in NAMES:
        found |= _signals(victim) | _connections(victim) | _machine(victim) | _messages(victim)
        found |= _stores(victim) if victim in STORES else _no_store(victim)
    found |= _stalled()
    for key in QUICK:
        found[key] = _quick(found[key])
    return found


def _quick(cell: Cell) -> Cell:
    return Cell(cell.promise, cell.measure, cell.tests, cell.why_not, quick=True)


def _back(victim: str, seconds: float, what: str = "Recovers") -> str:
    return f"{_KEEPS[victim]} {what} within {seconds:g} s."


def _signals(victim: str) -> dict[Key, Cell]:
    fenced = victim in ("learner", "replay shard")
    end = "The old process exits and says that another writer has taken over." if fenced else ""
    return {
        ("kill", victim): Cell(_back(victim, 20), m.killed(20)),
        ("stop", victim): Cell(_back(victim, 20, "Resumes"), m.stopped(10, 20)),
        ("lease", victim): Cell(
            f"{_back(victim, 30, 'The successor takes over')} {end}".strip(), m.replaced(30, fenced=fenced)
        ),
    }


def _connections(victim: str) -> dict[Key, Cell]:
    return {
        ("slow", victim): Cell(_back(victim, 20, "Slows down, or recovers"), m.connection(m.slow, 20)),
        ("cut", victim): Cell(_back(victim, 20), m.connection(m.cut, 20)),
        ("one-way", victim): Cell(_back(victim, 30), m.connection(m.one_way, 30)),
        ("corrupt", victim): Cell(
            f"{_back(victim, 30)} Tampered data is never used.",
            m.connection(m.corrupt, 30),
        ),
    }


def _machine(victim: str) -> dict[Key, Cell]:
    return {
        ("clock", victim): Cell(
            f"{_back(victim, 20)} This also holds if it restarts at an earlier time than before.", m.clock(20)
        ),
        ("memory", victim): Cell(_back(victim, 20), m.out_of_memory(20)),
    }


def _stores(victim: str) -> dict[Key, Cell]:
    again = "Reports the error, keeps running, and writes again"
    told = {
        "learner": "there is no space left",
        "replay shard": "there is no space left",
        "evaluator": "there is no space left",
    }[victim]
    promise = _back(victim, 30, again)
    found = {
        ("full-disk", victim): Cell(promise, m.disk(m.full, 40, told)),
        ("read-only", victim): Cell(
            promise
            if victim == "replay shard"
            else _back(victim, 40, "Exits with a clear error, and recovers"),
            m.disk(m.read_only, 40, "read-only file system"),
        ),
        ("s3-500", victim): Cell(promise, m.store(StoreScript("error", 500), 8, 30)),
        ("s3-503", victim): Cell(promise, m.store(StoreScript("error", 503, retry_after=1), 8, 30)),
        ("s3-slow", victim): Cell(promise, m.store(StoreScript("slow", delay=2.0), 8, 30)),
        ("s3-never", victim): Cell(promise, m.store(StoreScript("never"), 25, 40)),
        ("s3-multipart", victim): Cell(promise, m.multipart),
    }
    if victim == "evaluator":
        found["s3-multipart", victim] = Cell(
            why_not="Its results have a few hundred bytes: one request each."
        )
    return found


def _no_store(victim: str) -> dict[Key, Cell]:
    who = {"actor": "An actor", "parameter server": "A parameter server", "policy server": "A policy server"}
    why = f"{who[victim]} writes no files; others write its logs and metrics."
    store = f"{who[victim]} does not use the store."
    disks = {(fault, victim): Cell(why_not=why) for fault in ("full-disk", "read-only")}
    kinds = ("s3-500", "s3-503", "s3-slow", "s3-never", "s3-multipart")
    return disks | {(fault, victim): Cell(why_not=store) for fault in kinds}


def _messages(victim: str) -> dict[Key, Cell]:
    refused = "refused"
    schema = {
        "actor": Cell(
            "The actor is refused, and the error names the difference. Others are not affected. "
            "Recovers within 90 s with the old schema.",
            m.other_schema(90, refused),
        ),
        "learner": Cell(
            "The first writer sets the schema. Writers with another one are refused; the error names both.",
            tests=(
                "tests/integration/test_links.py::test_another_schema_is_refused_and_both_sides_say_the_difference",
            ),
        ),
        "replay shard": Cell(
            "Items that do not match its snapshot are refused with an error.",
            tests=(
                "tests/integration/test_replay_snapshots.py::test_other_items_than_in_the_snapshot_are_refused",
            ),
        ),
        "parameter server": Cell(
            "Arrays may differ between versions, and readers get them as they are. " + _back(victim, 60),
            m.other_schema(60),
        ),
        "policy server": Cell(
            f"Its clients are refused, and the error names the difference. {_back(victim, 90)}",
            m.other_schema(90, refused),
        ),
        "evaluator": Cell(
            f"Its evaluations are refused, and the error names the difference. {_back(victim, 90)}",
            m.other_schema(90, refused),
        ),
    }
    return {
        ("key", victim): Cell(
            f"Nothing is served, and the log says why. With the right key again: {_back(victim, 60)}",
            m.wrong_key(90),
        ),
        ("schema", victim): schema[victim],
        ("oversize", victim): oversize.CELLS[victim],
    }


def _stalled() -> dict[Key, Cell]:
    promise = f"{NOTHING_LOST} The replaced process deletes nothing of its successor's, and exits."
    nothing = "It writes nothing to the store."
    stalled = "tests/integration/test_stalled_writers.py::test_a_{}_that_was_stopped_at_any_call_takes_nothing_from_its_successor"
    return {
        ("stalled", "learner"): Cell(promise, tests=(stalled.format("learner"),)),
        ("stalled", "replay shard"): Cell(promise, tests=(stalled.format("replay_server"),)),
        ("stalled", "evaluator"): Cell(
            why_not="Each version has its own result, and both incarnations write the same one."
        ),
        **{("stalled", victim): Cell(why_not=nothing) for victim in SERVERS_WITHOUT_STORE},
    }
