"""The four kinds of server, each in a process of its own, and for each a client that counts how long it had to wait.

`python -m tools.fuzz.services serve KIND` says where it listens; `... use KIND ADDRESS` is served until its input ends,
and then says how often, and what its longest wait was.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np

from callsheet.runtime.context import Context
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.parameters import ParameterReader, ParameterServer
from callsheet.runtime.policy import PolicyClient, PolicyServer
from callsheet.runtime.replay import ReplayClient, ReplayServer, Table
from callsheet.runtime.schema import Schema
from callsheet.runtime.trajectories import TrajectoryReader, TrajectoryWriter
from tools.fuzz.peer import ENDPOINT, context

ITEM: Final = {"x": np.arange(64, dtype=np.float32), "n": np.int64(7)}
ASKED: Final = Schema.of({"x": np.zeros(8, np.float32)})
ANSWERED: Final = Schema.of({"y": np.zeros(8, np.float32)})
_PATIENCE: Final = 20.0
_ROOT: Final = Path(__file__).parents[2]


def _trajectories(ctx: Context, told: Callable[[str], None]) -> None:
    with TrajectoryReader(ctx, ENDPOINT) as reader:
        told(reader.address)
        while True:
            with contextlib.suppress(TimedOut):
                reader.read(4, timeout=0.5)


def _replay(ctx: Context, told: Callable[[str], None]) -> None:
    with ReplayServer(ctx, ENDPOINT, Table(kind="prioritized", items=10_000)) as server:
        told(server.address)
        server.serve()


def _parameters(ctx: Context, told: Callable[[str], None]) -> None:
    with ParameterServer(ctx, ENDPOINT) as server:
        told(server.address)
        for version in range(1 << 40):
            server.publish(version, {"weights": np.full(1000, version, np.float32)})
            ctx.sleep(0.02)


def _policy(ctx: Context, told: Callable[[str], None]) -> None:
    def act(
        observations: dict[str, np.ndarray], states: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        return {"y": observations["x"] + 1}, {"h": states["h"] + 1}

    with PolicyServer(
        ctx,
        ENDPOINT,
        act,
        max_batch=64,
        schema_in=ASKED,
        schema_out=ANSWERED,
        state={"h": np.zeros(4, np.float32)},
    ) as server:
        told(server.address)
        server.serve()


def _write(ctx: Context) -> Iterator[None]:
    with TrajectoryWriter(ctx, ENDPOINT) as writer:
        while True:
            writer.write(ITEM, timeout=_PATIENCE)
            writer.flush(_PATIENCE)
            yield


def _replayed(ctx: Context) -> Iterator[None]:
    with ReplayClient(ctx, ENDPOINT, batch=4) as client:
        while True:
            client.insert(ITEM, 1.0, timeout=_PATIENCE)
            client.flush(_PATIENCE)
            client.sample(_PATIENCE)
            yield


def _read(ctx: Context) -> Iterator[None]:
    with ParameterReader(ctx, ENDPOINT) as reader:
        while True:
            reader.wait(timeout=_PATIENCE)
            yield


def _ask(ctx: Context) -> Iterator[None]:
    with PolicyClient(ctx, ENDPOINT) as client:
        while True:
            client.act({"x": np.zeros((2, 8), np.float32)}, timeout=_PATIENCE)
            yield


SERVERS: Final = {
    "trajectories": _trajectories,
    "replay": _replay,
    "parameters": _parameters,
    "policy": _policy,
}
CLIENTS: Final = {"trajectories": _write, "replay": _replayed, "parameters": _read, "policy": _ask}


class Server:
    """One of the servers in a process of its own."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.fuzz.services", "serve", kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError(f"the {kind} server did not start: {self.said}")

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said = [*self._said[-200:], line[:2000]]

    @property
    def said(self) -> str:
        """The end of what it has said on stderr."""
        return "".join(self._said)

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def memory(self) -> int:
        """Bytes that it takes now, those of shared memory included."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) << 10

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join(5)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


class Client:
    """An honest client in a process of its own."""

    def __init__(self, kind: str, address: str, *, memory: bool = True) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tools.fuzz.services",
                "use",
                kind,
                address,
                *([] if memory else ["network"]),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "served":
            self.__exit__(None, None, None)
            raise RuntimeError("the honest client was not served at all")

    def end(self) -> tuple[int, float]:
        """How often it was served, and its longest wait in seconds."""
        try:
            out, _ = self._process.communicate("", timeout=2 * _PATIENCE)
        except subprocess.TimeoutExpired:
            raise RuntimeError("the honest client is not served any more") from None
        if self._process.returncode:
            raise RuntimeError(f"the honest client ended with {self._process.returncode}")
        found = json.loads(out)
        return int(found["served"]), float(found["gap"])

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _serve(kind: str) -> None:
    with context(role="server") as ctx:

        def end_with_input() -> None:
            sys.stdin.read()
            ctx.stop.set()

        threading.Thread(target=end_with_input, daemon=True).start()
        SERVERS[kind](ctx, lambda address: print(address, flush=True))


def _use(kind: str, address: str, *, memory: bool) -> None:
    ended = threading.Event()

    def end_with_input() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=end_with_input, daemon=True).start()
    with context(address, role="honest", index=int(memory), memory=memory) as ctx:
        served, gap, last = 0, 0.0, 0.0
        work = CLIENTS[kind](ctx)
        while not ended.is_set():
            next(work)
            now = time.monotonic()
            if served:
                gap = max(gap, now - last)
            else:
                print("served", flush=True)
            last = now
            served += 1
            ended.wait(0.002)
        work.close()  # type: ignore[attr-defined]
    print(json.dumps({"served": served, "gap": gap}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(sys.argv[2])
    else:
        _use(sys.argv[2], sys.argv[3], memory="network" not in sys.argv[4:])
