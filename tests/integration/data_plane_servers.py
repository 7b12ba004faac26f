"""The four kinds of data plane servers, each in its own process, and a regular client for each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from callsheet.runtime.context import Context
from callsheet.runtime.keys import Keys
from callsheet.runtime.parameters import ParameterReader, ParameterServer
from callsheet.runtime.policy import PolicyClient, PolicyServer
from callsheet.runtime.replay import ReplayClient, ReplayServer, Table
from callsheet.runtime.schema import Schema
from callsheet.runtime.trajectories import TrajectoryReader, TrajectoryWriter

SERVERS = ["trajectories", "parameters", "replay", "policy"]
KEYS = Keys(b"s" * 32)
OBSERVATION = {"x": np.zeros(4, np.float32)}
_PROGRAM = """
import resource, sys
sys.path.insert(0, {tests!r})
if {descriptors!r}:
    resource.setrlimit(resource.RLIMIT_NOFILE, {descriptors!r})
from data_plane_servers import serve
serve({kind!r}, {carrier!r})
"""


def context(carrier: str, role: str, address: str = "127.0.0.1:0", index: int = 0) -> Context:
    """A process of the run: by `memory`, over the `network` in plaintext, or `encrypted` there."""
    return Context(
        addresses={"e": address},
        role=role,
        index=index,
        keys=KEYS,
        plaintext=carrier == "network",
        memory=carrier == "memory",
    )


def serve(kind: str, carrier: str) -> None:
    """Be a server until somebody ends the process. It opens a file now and then, as programs do."""
    with context(carrier, "server") as ctx:
        step = _step(kind, ctx)
        while True:
            step()
            with open("/proc/self/stat", encoding="ascii"):
                pass


def _step(kind: str, ctx: Context) -> Callable[[], Any]:
    schema = Schema.of(OBSERVATION)
    if kind == "trajectories":
        reader = TrajectoryReader(ctx, "e")
        print(reader.address, flush=True)
        return lambda: reader.read(1)
    if kind == "parameters":
        parameters = ParameterServer(ctx, "e")
        print(parameters.address, flush=True)
        versions = iter(range(1 << 30))

        def publish() -> None:
            parameters.publish(next(versions), OBSERVATION)
            ctx.sleep(0.01)

        return publish
    if kind == "replay":
        replay = ReplayServer(ctx, "e", Table(items=1000))
        print(replay.address, flush=True)
        return lambda: replay.step(1)
    policy = PolicyServer(
        ctx,
        "e",
        lambda batch: {"y": batch["x"]},
        max_batch=8,
        schema_in=schema,
        schema_out=Schema.of({"y": OBSERVATION["x"]}),
    )
    print(policy.address, flush=True)
    return lambda: policy.step(1)


@contextmanager
def server(
    kind: str, carrier: str, descriptors: tuple[int, int] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process, and its address; with so many descriptors at most, soft and hard."""
    code = _PROGRAM.format(
        tests=str(Path(__file__).parent), kind=kind, carrier=carrier, descriptors=descriptors
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
        assert process.poll() is None, "the server lives"
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@contextmanager
def client(kind: str, carrier: str, address: str, index: int = 0) -> Iterator[Callable[[], Any]]:
    """An honest client: each call is served once, or times out."""
    with context(carrier, "client", address, index) as ctx:
        if kind == "trajectories":
            with TrajectoryWriter(ctx, "e") as writer:

                def write() -> None:
                    writer.write(OBSERVATION, timeout=30)
                    writer.flush(30)

                yield write
        elif kind == "parameters":
            with ParameterReader(ctx, "e") as reader:
                yield lambda: reader.wait(timeout=30)
        elif kind == "replay":
            with ReplayClient(ctx, "e") as replay:

                def insert() -> None:
                    replay.insert(OBSERVATION, timeout=30)
                    replay.flush(30)

                yield insert
        else:
            with PolicyClient(ctx, "e") as policy:
                yield lambda: policy.act({"x": OBSERVATION["x"][None]}, timeout=30)


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")
