"""Who has not the run's key: it learns nothing, costs little, and keeps nobody from being served."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.synchronize import Event
from typing import Any

import pytest
from data_plane_servers import SERVERS, client, resident, server
from local_runs import eventually

from callsheet.runtime.link.protocol import MAX_PART_BYTES

STRANGERS = 100


def greeting(carrier: str) -> bytes:
    """How ZeroMQ's protocol begins."""
    mechanism = b"NULL" if carrier == "network" else b"CURVE"
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)


def command(size: int) -> bytes:
    """Begins a command of ZeroMQ's protocol, which is said to have so many bytes."""
    return struct.pack(">BQ", 0x06, size)


def pour(strangers: list[socket.socket], most: int) -> int:
    """Have every stranger send so many bytes, as far as the server takes them; how many were taken in all."""
    chunk, sent, open_ones = bytes(1 << 16), dict.fromkeys(strangers, 0), list(strangers)
    over = time.monotonic() + 20
    while open_ones and time.monotonic() < over:
        taken = 0
        for one in list(open_ones):
            try:
                size = one.send(chunk[: most - sent[one]])
            except BlockingIOError:
                continue
            except OSError:
                open_ones.remove(one)
                continue
            sent[one] += size
            taken += size
            if sent[one] >= most:
                open_ones.remove(one)
        if not taken:
            time.sleep(0.01)
    return sum(sent.values())


def gap(ask: Callable[[], Any], seconds: float) -> float:
    """The longest time for which an honest client was not served."""
    longest, over = 0.0, time.monotonic() + seconds
    while (begun := time.monotonic()) < over:
        ask()
        longest = max(longest, time.monotonic() - begun)
    return longest


@pytest.mark.parametrize("carrier", ["encrypted", "network"])
@pytest.mark.parametrize("kind", SERVERS)
def test_a_hundred_strangers_with_large_messages_cost_little_memory(kind: str, carrier: str) -> None:
    with (
        server(kind, carrier) as (process, address),
        client(kind, carrier, address) as ask,
        ExitStack() as stack,
    ):
        ask()
        host, port = address.rsplit(":", 1)
        before = resident(process.pid)
        for size in (1 << 30, MAX_PART_BYTES):
            strangers = [
                stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(STRANGERS)
            ]
            for one in strangers:
                one.setblocking(False)
                one.send(greeting(carrier) + command(size))
            pour(strangers, MAX_PART_BYTES - 1)
            ask()
            assert resident(process.pid) - before < 64e6
            for one in strangers:
                one.close()


@pytest.mark.parametrize("said", [b"", greeting("encrypted")], ids=["silent", "greeting"])
def test_a_thousand_strangers_leave_a_program_its_descriptors(said: bytes) -> None:
    """The server opens a file after every step: without a descriptor to do so, it would die."""
    with (
        server("replay", "encrypted", (1024, 1024)) as (process, address),
        client("replay", "encrypted", address) as ask,
        ExitStack() as stack,
    ):
        host, port = address.rsplit(":", 1)
        for number in range(1100):
            stranger = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
            with contextlib.suppress(OSError):  # it was turned away already
                stranger.send(said)
            if number % 100 == 0:
                ask()
        # Sooner than the handshakes time out: a quarter of the descriptors, and the program's own.
        eventually(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) < 256 + 64, within=3)
        with client("replay", "encrypted", address, index=1) as newcomer:
            newcomer()


def test_a_program_started_by_hand_gets_as_many_descriptors_as_it_may() -> None:
    with server("replay", "encrypted", (1024, 4096)) as (process, _):
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (4096, 4096)


@contextmanager
def connecting_again_and_again(address: str) -> Iterator[None]:
    """Another process that connects to an abstract Unix socket as fast as it can."""
    fork = multiprocessing.get_context("fork")
    stop: Event = fork.Event()
    others = [fork.Process(target=_connect_again_and_again, args=(address, stop)) for _ in range(2)]
    for one in others:
        one.start()
    try:
        yield
    finally:
        stop.set()
        for one in others:
            one.join()


def _connect_again_and_again(address: str, stop: Event) -> None:
    while not stop.is_set():
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger, contextlib.suppress(OSError):
            stranger.setblocking(False)
            stranger.connect(address)


def unix_socket_of(pid: int) -> str:
    """The abstract socket on which a process listens: anybody on the machine can see it."""
    fds = f"/proc/{pid}/fd"
    links = [os.readlink(f"{fds}/{fd}") for fd in os.listdir(fds)]
    with open("/proc/net/unix", encoding="utf-8") as file:
        rows = [line.split() for line in file if "@callsheet-" in line]
    return next(row[7].replace("@", "\0", 1) for row in rows if f"socket:[{row[6]}]" in links)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_storm_at_the_unix_socket_keeps_nobody_from_being_served(kind: str) -> None:
    with server(kind, "memory") as (process, address), client(kind, "memory", address) as ask:
        ask()
        with connecting_again_and_again(unix_socket_of(process.pid)):
            assert gap(ask, 2) < 2
            with client(kind, "memory", address, index=1) as newcomer:
                newcomer()
