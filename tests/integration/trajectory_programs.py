"""Programs that a test kills: an actor and a learner, each a real process, started quickly by a fork server."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path
from typing import Any

import numpy as np
from trajectory_peers import context, reading, writing

from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.trajectories import TrajectoryReader, TrajectoryWriter

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["numpy", "zmq", "msgspec", "callsheet.runtime.trajectories"])
ITEMS, WRONG, STARTED, FIRST, WRITERS = range(5)
"""Places in what a learner tells: items that came, those out of order; when it started, when something came; of whom."""


def start(program: Callable[..., None], *arguments: Any) -> Any:
    """Run a program as a process of its own."""
    process = FORKS.Process(target=_main, args=(program, *arguments), daemon=True)
    process.start()
    return process


def _main(program: Callable[..., None], *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    program(*arguments)


def telling() -> SynchronizedArray[float]:
    """Memory in which a learner tells how it is going."""
    return FORKS.Array("d", 5)


def act(kind: str, address: str, index: int, size: int) -> None:
    """Write items as fast as they are taken."""
    with context(kind, address, role="actor", index=index) as ctx, TrajectoryWriter(ctx, "t") as writer:
        arrays = {"x": np.zeros(size, "i8")}
        while True:
            arrays["x"][:] = writer.counts()["items"] + 1
            writer.write(arrays)


def flood(kind: str, address: str) -> None:
    """Write tiny items, a million in a few seconds."""
    with context(kind, address, role="actor") as ctx, TrajectoryWriter(ctx, "t") as writer:
        arrays = {"x": np.zeros(2, "f4"), "n": np.zeros((), "i8")}
        while True:
            writer.write(arrays, version=7)


def learn(kind: str, address: str, told: SynchronizedArray[float]) -> None:
    """Read items and see whether each is whole and next in its order."""
    tell = told.get_obj()
    tell[STARTED] = time.monotonic()
    last: dict[tuple[int, int], int] = {}
    with context(kind, address, role="learner") as ctx, TrajectoryReader(ctx, "t") as reader:
        while True:
            batch = reader.read(4)
            for number in range(4):
                who = int(batch.writers[number]), int(batch.incarnations[number])
                sequence = int(batch.sequences[number])
                right = (batch["x"][number] == sequence).all() and last.get(who, sequence - 1) == sequence - 1
                last[who] = sequence
                tell[WRONG] += not right
            tell[ITEMS] += 4
            if not tell[FIRST]:
                tell[FIRST] = time.monotonic()
            tell[WRITERS] = len({who for who, _ in last})


def act_durably(kind: str, address: str, index: int, folder: str) -> None:
    """Write items, and log which are durable, until the folder says that it is time to finish."""
    log = os.open(f"{folder}/log-{index}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    logged: dict[int, int] = {}
    with (
        context(kind, address, role="actor", index=index) as ctx,
        TrajectoryWriter(ctx, "t", durable=True, keep=1 << 20) as writer,
    ):

        def note() -> None:
            for incarnation, sequence in ((ctx.incarnation, writer.durable), *writer.previous):
                if sequence > logged.get(incarnation, 0):
                    logged[incarnation] = sequence
                    os.write(log, f"{incarnation} {sequence}\n".encode())

        arrays = {"id": np.zeros(2, "i8"), "x": np.zeros(1000, "i8")}
        finish = Path(folder, "finish")
        sequence = 0
        while sequence == 0 or not finish.exists():  # at least one: what came before it is then known too
            sequence += 1
            arrays["id"][:] = ctx.incarnation, sequence
            arrays["x"][:] = sequence
            assert writer.write(arrays) == sequence
            note()
            time.sleep(0.0005)
        writer.flush(timeout=30, durable=True)
        note()


def learn_durably(kind: str, address: str, folder: str) -> None:
    """Store each batch together with the cursor, in one file that is there or is not, and only then call it durable."""
    stored = sorted(int(name[6:]) for name in os.listdir(folder) if name.startswith("batch-"))
    cursor = json.loads(Path(folder, f"batch-{stored[-1]}").read_text())["cursor"] if stored else None
    number = stored[-1] if stored else 0
    with (
        context(kind, address, role="learner") as ctx,
        TrajectoryReader(ctx, "t", cursor=cursor) as reader,
    ):
        while True:
            size = 1 if Path(folder, "finish").exists() else 16
            try:
                batch = reader.read(size, timeout=0.1)
            except TimedOut:
                continue
            assert (batch["id"][:, 0] == batch.incarnations).all()
            assert (batch["id"][:, 1] == batch.sequences).all()
            assert (batch["x"] == batch.sequences[:, None]).all()
            names = [reader.writers[writer] for writer in batch.writers]
            items = list(zip(names, batch.incarnations.tolist(), batch.sequences.tolist(), strict=True))
            cursor = reader.cursor()
            number += 1
            Path(folder, "new").write_text(json.dumps({"items": items, "cursor": cursor}))
            os.rename(f"{folder}/new", f"{folder}/batch-{number}")
            reader.durable(cursor)


def stored_and_promised(
    folder: Path, actors: int
) -> tuple[list[tuple[str, int, int]], set[tuple[str, int, int]]]:
    """What `learn_durably` stored, and what those who `act_durably` logged as durable: writer, incarnation, sequence."""
    stored = []
    for path in folder.glob("batch-*"):
        stored += [tuple(one) for one in json.loads(path.read_text())["items"]]
    logged: dict[tuple[str, int], int] = {}
    for index in range(actors):
        for line in (folder / f"log-{index}").read_text().splitlines():
            incarnation, sequence = map(int, line.split())
            who = (f"actor/{index}/actor", incarnation)
            logged[who] = max(sequence, logged.get(who, 0))
    return stored, {(*who, number) for who, last in logged.items() for number in range(1, last + 1)}


def take_large(kind: str, told: SynchronizedArray[float]) -> None:
    """Write and read items of 128 pages, and tell how many pages the system had to give for each of them."""
    size, count = 512 * 1024, 400

    def work(writer: TrajectoryWriter) -> None:
        for _ in range(count):
            writer.write({"x": given})

    given, out = np.zeros(size, "u1"), {"x": np.zeros((4, size), "u1")}
    with reading(kind) as reader, writing(kind, reader.address, work):
        for _ in range(count // 8):
            reader.read(4, timeout=30, out=out)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(count // 8):
            reader.read(4, timeout=30, out=out)
        told[0] = 2 * (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / count
