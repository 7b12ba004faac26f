"""Programs that a test kills: shards, writers and a learner of a replay, each a real process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from replay_servers import context
from stalling_store import Stalls

from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.replay import ReplayClient, ReplayServer, Table
from callsheet.runtime.replay.server import server

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["numpy", "zmq", "msgspec", "callsheet.runtime.replay"])
TABLE = Table(kind="prioritized", items=200_000)


def start(program: Callable[..., None], *arguments: Any) -> Any:
    """Run a program as a process of its own."""
    process = FORKS.Process(target=_main, args=(program, *arguments), daemon=True)
    process.start()
    return process


def _main(program: Callable[..., None], *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    program(*arguments)


def serve(address: str, index: int, folder: str, every: float) -> None:
    """A shard with a snapshot every so often."""
    with (
        context("memory", address, role="replay", index=index) as ctx,
        ReplayServer(ctx, "replay", TABLE, storage=folder, snapshot_every=every) as shard,
    ):
        shard.serve()


def write(kind: str, addresses: str, index: int, folder: str) -> None:
    """Insert items, and log where each went and what is durable, until it is time to finish."""
    log = os.open(f"{folder}/durable-{index}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    sent = os.open(f"{folder}/sent-{index}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    finish = Path(folder, "finish")
    logged: dict[tuple[str, int], int] = {}
    with (
        context(kind, addresses, role="actor", index=index) as ctx,
        ReplayClient(ctx, "replay", durable=True, keep=1 << 20) as replay,
    ):

        def note() -> None:
            known = [(shard, ctx.incarnation, last) for shard, last in replay.durable.items()]
            for shard, marks in replay.previous.items():
                known += [(shard, incarnation, last) for incarnation, last in marks]
            for shard, incarnation, last in known:
                if last > logged.get((shard, incarnation), 0):
                    logged[shard, incarnation] = last
                    os.write(log, f"{shard} {incarnation} {last}\n".encode())

        number, used = 0, set()
        while len(used) < len(addresses.split(",")) or not finish.exists():
            number += 1
            arrays = {"id": np.array([index, ctx.incarnation, number]), "x": np.full(250, number)}
            shard, sequence = replay.insert(arrays)
            used.add(shard)
            os.write(sent, f"{shard} {ctx.incarnation} {sequence} {number}\n".encode())
            note()
            time.sleep(0.0005)
        replay.flush(30, durable=True)
        note()


def learn(kind: str, addresses: str, folder: str) -> None:
    """Sample, look whether items are whole, and change priorities."""
    with context(kind, addresses, role="learner") as ctx, ReplayClient(ctx, "replay", batch=32) as replay:
        while True:
            try:
                sample = replay.sample(1.0)
            except TimedOut:
                continue
            if not (sample.arrays["x"] == sample.arrays["id"][:, 2:]).all():
                Path(folder, "torn").write_text(repr(sample.arrays["id"]))
            replay.update(sample.keys, np.random.default_rng().random(32), timeout=1.0)
            time.sleep(0.001)


def serve_and_stop_itself(address: str, folder: str, before: str) -> None:
    """A shard that stops, as by SIGSTOP from outside, before a call to its store, once there is a file that says so."""
    stalls = Stalls(Path(folder))
    stalls.arm(0)

    def stop(call: str) -> None:
        if call == before and Path(folder, "stop").exists():
            Path(folder, "stop").rename(Path(folder, "stopped"))
            signal.pthread_kill(
                threading.get_ident(), signal.SIGSTOP
            )  # to us: so it stops here, and not soon

    stalls.stop = stop
    server.open_store = lambda url: stalls.store  # type: ignore[assignment]
    serve(address, 0, folder, 0.1)
