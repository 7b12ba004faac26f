"""Replay servers and clients for tests: contexts of each kind, and servers in threads beside the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from callsheet.runtime.context import Context
from callsheet.runtime.keys import Keys
from callsheet.runtime.link.link import TimedOut
from callsheet.runtime.replay import ReplayClient, ReplayServer, Table
from callsheet.runtime.stop import Stopping

KINDS = ["memory", "network", "encrypted"]


def context(kind: str, address: str = "127.0.0.1:0", **options: Any) -> Context:
    """A process of the run, as far as its peers can tell."""
    return Context(
        addresses={"replay": address},
        keys=Keys(b"k" * 32),
        plaintext=kind == "network",
        memory=kind == "memory",
        **options,
    )


class Serving(threading.Thread):
    """A server in a thread, which ends as a process does on SIGTERM."""

    def __init__(self, kind: str, tables: Table | list[Table], options: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        address, index = options.pop("address", "127.0.0.1:0"), options.pop("index", 0)
        self.context = context(kind, address, role="replay", index=index)
        try:
            self.server = ReplayServer(self.context, "replay", tables, **options)
        except BaseException:
            self.context.close()
            raise
        self.address = self.server.address
        self.error: Exception | None = None
        self.killed = False

    def run(self) -> None:
        try:
            while not self.killed:
                self.server.serve(0.05)
        except Stopping:
            pass
        except Exception as error:  # noqa: BLE001 - raised by `stop`
            self.error = error
        finally:
            self.server.close()
            self.context.close()

    def stop(self, *, killed: bool = False) -> None:
        """End it: with a last snapshot, or as if it had been killed."""
        if killed:
            self.killed = True
        else:
            self.context.stop.set()
        self.join(20)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


@contextmanager
def serving(kind: str, tables: Table | list[Table], **options: Any) -> Iterator[Serving]:
    """A server at work beside the block."""
    one = Serving(kind, tables, options)
    one.start()
    try:
        yield one
    finally:
        if one.is_alive():
            one.stop(killed=True)


@contextmanager
def client(
    kind: str, *addresses: str, role: str = "learner", index: int = 0, **options: Any
) -> Iterator[ReplayClient]:
    """A client of one or several shards."""
    with (
        context(kind, ",".join(addresses), role=role, index=index) as ctx,
        ReplayClient(ctx, "replay", **options) as made,
    ):
        yield made


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def reason(call: Callable[[float], Any]) -> str:
    """What a call says that it waits for, once it has been told; it is given a little time, again and again."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            call(0.2)
        except TimedOut as error:
            if "wait for" in error.message:
                return error.message
    raise AssertionError("nobody said what it waits for")
