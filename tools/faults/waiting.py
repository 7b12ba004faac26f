"""Waiting for conditions, and ports for programs that are started a moment later or again."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
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
    """Ports on which nothing listens. They lie below those that the kernel gives to whoever asks for any, and below
    those that Callsheet chooses: nobody takes one by chance before it is used."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            port = random.randrange(10_000, 20_000)  # noqa: S311 - no secret
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    return found


def free_address() -> str:
    """A place that is free now."""
    return f"127.0.0.1:{free_ports(1)[0]}"
