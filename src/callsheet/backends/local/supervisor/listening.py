"""Which ports have a listener, read from /proc without connecting to anything."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Collection

_LISTEN = "0A"
ANY_HOST = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound


def listeners() -> dict[tuple[str, int], int]:
    """Every listening TCP socket: (host, port) -> inode."""
    sockets: dict[tuple[str, int], int] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as file:
                next(file)
                for line in file:
                    fields = line.split()
                    if fields[3] == _LISTEN:
                        host, _, port = fields[1].partition(":")
                        sockets[_host(host), int(port, 16)] = int(fields[9])
        except OSError:
            continue
    return sockets


def _host(text: str) -> str:
    """The tables hold addresses as hexadecimal words in the machine's byte order."""
    words = [int(text[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(text), 8)]
    packed = b"".join(words)
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed)
    if packed.startswith(b"\0" * 10 + b"\xff\xff"):
        return socket.inet_ntop(socket.AF_INET, packed[12:])
    return socket.inet_ntop(socket.AF_INET6, packed)


def is_listening(table: Collection[tuple[str, int]], host: str, port: int) -> bool:
    """Whether something accepts connections there; a listener on all addresses counts."""
    return (host, port) in table or any((anywhere, port) in table for anywhere in ANY_HOST)


def can_connect(host: str, port: int) -> bool:
    """The same for systems without /proc: open a connection."""
    try:
        with socket.create_connection((host, port), timeout=0.2):
            return True
    except OSError:
        return False


def holder(inode: int) -> str:
    """Which process has a socket, as ``name (pid 123)``; empty if unknown."""
    wanted = f"socket:[{inode}]"
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            for fd in os.listdir(f"/proc/{name}/fd"):
                if os.readlink(f"/proc/{name}/fd/{fd}") == wanted:
                    with open(f"/proc/{name}/cmdline", "rb") as file:
                        command = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
                    return f"{command[:80]} (pid {name})"
        except OSError:
            continue
    return ""
