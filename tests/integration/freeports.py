"""Ports for programs that are started a moment later, or again."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens. They lie below those that the kernel gives to whoever asks for any, and below
    those that Callsheet chooses: nobody takes one by chance before it is used."""
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            port = random.randrange(10_000, 20_000)
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found.append(port)
    return found


def free_address() -> str:
    """A place that is free now."""
    return f"127.0.0.1:{free_ports(1)[0]}"
