"""Waiting for conditions, and ports for programs that are started a moment later or again."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T | None], within: float = 30.0, what: str = "") -> T:
    """The first truthy answer; fails with the last one."""
    limit = time.monotonic() + within
    while True:
        answer = look()
        if answer:
            return answer
        if time.monotonic() > limit:
            raise AssertionError(f"not within {within} s: {what or repr(answer)}")
        time.sleep(0.02)


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens. They lie below those that the kernel assigns and those that Callsheet chooses, each
    process of a parallel test run has its own share of them, and it uses them in turn: no one else takes one before
    it is used."""
    ports: list[int] = []
    with ExitStack() as stack:
        while len(ports) < count:
            port = next(_PORTS)
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def _ports_of_this_process() -> Iterator[int]:
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = 10_000 // workers
    first = random.randrange(size)  # noqa: S311 - no secret
    while True:
        for offset in range(size):
            yield 10_000 + number * size + (first + offset) % size


_PORTS = _ports_of_this_process()


def free_address() -> str:
    """A place that is free now."""
    return f"127.0.0.1:{free_ports(1)[0]}"
