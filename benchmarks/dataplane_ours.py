"""Our side of `dataplane.py`: each part of the data plane under the same load as its peers.

dataplane_ours.py trajectories PAYLOAD WRITERS SECONDS memory|network|encrypted
dataplane_ours.py weights ROUNDS | publish READERS ROUNDS
dataplane_ours.py replay PAYLOAD WRITERS SECONDS
dataplane_ours.py policy CLIENTS SECONDS
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "peers"))

from clients import OBSERVATION, PROCESSES, ask, summary
from payloads import BATCH, PAYLOADS, measure, report, rollout, size

from callsheet.runtime import (
    Context,
    ParameterReader,
    ParameterServer,
    PolicyClient,
    PolicyServer,
    ReplayClient,
    ReplayServer,
    Schema,
    TrajectoryReader,
    TrajectoryWriter,
)
from callsheet.runtime.keys import Keys
from callsheet.runtime.replay import Table

NUMBERS = 1_690_000
"""Of 4 bytes each: 6.76 MB of weights."""


def context(way: str, role: str, index: int = 0, address: str = "127.0.0.1:0") -> Context:
    """A process that uses memory, the network, or the network with encryption."""
    keys = Keys(b"benchmark".ljust(32)) if way == "encrypted" else None
    return Context(
        role=role,
        index=index,
        addresses={"e": address},
        keys=keys,
        plaintext=keys is None,
        memory=way == "memory",
    )


def child(*words: object) -> subprocess.Popen[str]:
    """Another process of this file."""
    return subprocess.Popen([sys.executable, __file__, *map(str, words)], stdout=subprocess.PIPE, text=True)


def trajectories(payload: str, writers: int, seconds: float, way: str) -> None:
    with context(way, "reader") as here, TrajectoryReader(here, "e", window=8) as reader:
        children = [child("write", payload, way, reader.address, n) for n in range(writers)]
        batch = {name: np.empty((BATCH, *shape), kind) for name, (shape, kind) in PAYLOADS[payload].items()}

        def take() -> int:
            return len(reader.read(BATCH, timeout=30, out=batch))

        measure(f"Callsheet, {way}", payload, writers, seconds, take)
        for one in children:
            one.kill()
    os._exit(0)


def write(payload: str, way: str, address: str, index: int) -> None:
    item = rollout(payload)
    with context(way, "writer", index, address) as here, TrajectoryWriter(here, "e", window=8) as writer:
        while True:
            writer.write(item)


def weights(rounds: int) -> None:
    with context("memory", "learner") as here, ParameterServer(here, "e") as server:
        children = [child("read", server.address, n) for n in range(2)]
        for one in children:
            assert one.stdout is not None
            one.stdout.readline()
        values = np.random.default_rng(0).random(NUMBERS).astype("f4")
        times = []
        for version in range(1, rounds + 1):
            begun = time.perf_counter()
            server.publish(version, {"weights": values})
            for one in children:
                assert one.stdout is not None
                one.stdout.readline()
            times.append(time.perf_counter() - begun)
        report("Callsheet", readers=2, ms=statistics.median(times) * 1000)
        for one in children:
            one.kill()
    os._exit(0)


def read(address: str, index: int) -> None:
    mine = {"weights": np.empty(NUMBERS, "f4")}
    with context("memory", "actor", index, address) as here, ParameterReader(here, "e") as reader:
        print("ready", flush=True)
        while True:
            reader.wait(out=mine)
            sys.stdout.write("k\n")
            sys.stdout.flush()


def publish(readers: int, rounds: int) -> None:
    """How long `publish` takes while so many readers take every version."""
    with context("memory", "learner") as here, ParameterServer(here, "e") as server:
        children = [child("follow", server.address, n, min(16, readers - n)) for n in range(0, readers, 16)]
        for one in children:
            assert one.stdout is not None
            one.stdout.readline()
        values = np.random.default_rng(0).random(100_000).astype("f4")
        times = []
        for version in range(1, rounds + 1):
            begun = time.perf_counter()
            server.publish(version, {"weights": values})
            times.append(time.perf_counter() - begun)
            time.sleep(0.02)
        times.sort()
        p99, p50 = times[int(len(times) * 0.99)] * 1e6, statistics.median(times) * 1e6
        report("publish", readers=readers, p99_us=p99, p50_us=p50)
        for one in children:
            one.kill()
    os._exit(0)


def follow(address: str, first: int, count: int) -> None:
    """So many readers in threads, each with a link of its own."""
    ready = threading.Barrier(count + 1)

    def run(number: int) -> None:
        with ParameterReader(context("memory", "actor", first + number, address), "e") as reader:
            reader.poll()
            ready.wait()
            while True:
                reader.wait()

    for number in range(count):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    ready.wait()
    print("ready", flush=True)
    time.sleep(3600)


def replay(payload: str, writers: int, seconds: float) -> None:
    """A server, writers that insert, and a learner that samples 16 and changes their priorities."""
    server = child("serve-replay", payload)
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    children = [child("insert", payload, address, n) for n in range(writers)]
    batch = {name: np.empty((BATCH, *shape), kind) for name, (shape, kind) in PAYLOADS[payload].items()}
    with (
        context("memory", "learner", 0, address) as here,
        ReplayClient(here, "e", batch=BATCH, ahead=4) as client,
    ):
        chance = np.random.default_rng(0)

        def take() -> None:
            sample = client.sample(timeout=30, out=batch)
            client.update(sample.keys, chance.random(BATCH))

        for _ in range(20):
            take()
        inserted = _inserts(children)
        count, cpu, begun = 0, time.process_time(), time.perf_counter()
        while time.perf_counter() - begun < seconds:
            take()
            count += BATCH
        took = time.perf_counter() - begun
        gigabytes = count * size(payload) / 1e9
        report(
            "Callsheet, prioritized",
            payload=payload,
            writers=writers,
            items_per_s=count / took,
            mb_per_s=gigabytes * 1000 / took,
            inserts_per_s=(_inserts(children) - inserted) / took,
            reader_cpu_s_per_gb=(time.process_time() - cpu) / gigabytes,
        )
    for one in [server, *children]:
        one.kill()
    os._exit(0)


def _inserts(children: list[subprocess.Popen[str]]) -> int:
    """How many items the writers have inserted so far: each answers a signal with its number."""
    import signal

    total = 0
    for one in children:
        one.send_signal(signal.SIGUSR1)
        assert one.stdout is not None
        total += int(one.stdout.readline())
    return total


def serve_replay(payload: str) -> None:
    table = Table(kind="prioritized", items=1000)
    with context("memory", "replay") as here, ReplayServer(here, "e", table) as server:
        print(server.address, flush=True)
        server.serve()


def insert(payload: str, address: str, index: int) -> None:
    import signal

    item, count = rollout(payload), 0
    signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"%d\n" % count))
    with context("memory", "writer", index, address) as here, ReplayClient(here, "e") as client:
        while True:
            client.insert(item, 1.0)
            count += 1


def policy(clients: int, seconds: float) -> None:
    shape = Schema.of({"observation": OBSERVATION[0]})
    answer = Schema.of({"action": np.zeros((), "i8")})

    def act(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"action": (arrays["observation"].sum(axis=1) > 0).astype("i8")}

    with context("memory", "policy") as here:
        server = PolicyServer(here, "e", act, schema_in=shape, schema_out=answer, max_batch=clients)
        threading.Thread(target=server.serve, daemon=True).start()
        each = clients // PROCESSES
        children = [child("ask", server.address, n * each, each, seconds) for n in range(PROCESSES)]
        report("Callsheet", clients=clients, **summary([one.communicate()[0] for one in children], seconds))
    os._exit(0)


def asking(address: str, first: int, count: int, seconds: float) -> None:
    def make(number: int) -> Callable[[], None]:
        client = PolicyClient(context("memory", "simulator", number, address), "e")

        def request() -> None:
            client.act({"observation": OBSERVATION})

        return request

    print(ask(make, first, count, seconds), flush=True)
    os._exit(0)


def main(verb: str, *words: str) -> None:
    if verb == "trajectories":
        trajectories(words[0], int(words[1]), float(words[2]), words[3])
    elif verb == "write":
        write(words[0], words[1], words[2], int(words[3]))
    elif verb == "weights":
        weights(int(words[0]))
    elif verb == "read":
        read(words[0], int(words[1]))
    elif verb == "publish":
        publish(int(words[0]), int(words[1]))
    elif verb == "follow":
        follow(words[0], int(words[1]), int(words[2]))
    elif verb == "replay":
        replay(words[0], int(words[1]), float(words[2]))
    elif verb == "serve-replay":
        serve_replay(words[0])
    elif verb == "insert":
        insert(words[0], words[1], int(words[2]))
    elif verb == "policy":
        policy(int(words[0]), float(words[1]))
    elif verb == "ask":
        asking(words[0], int(words[1]), int(words[2]), float(words[3]))


if __name__ == "__main__":
    main(*sys.argv[1:])
