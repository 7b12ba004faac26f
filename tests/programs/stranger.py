"""Somebody who has not the run's key: tries one thing and prints, as JSON, what came of it.

Another user of this machine, when it is started by root (who alone can become somebody else), or another pod.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from callsheet.backends.local.client import LocalRun
from callsheet.runtime import Context
from callsheet.runtime.keys import Keys
from callsheet.runtime.link import protocol as m

USER = 54321


def files(folder: str) -> dict[str, list[str]]:
    """What can be read below a folder, and where something can be written."""
    read: list[str] = []
    written: list[str] = []
    for where, _, names in os.walk(folder):
        read += [path for name in names if _can(open, path := os.path.join(where, name), "rb")]
        if _can(os.open, os.path.join(where, "planted"), os.O_WRONLY | os.O_CREAT):
            written.append(where)
    return {"read": read, "written": written}


def open_files(*paths: str) -> list[str]:
    """Which of these can be read: who cannot list a folder may still guess what is in it."""
    return [path for path in paths if _can(_read, path)]


def processes(*pids: str) -> dict[str, list[str]]:
    """What can be learned of processes beyond their command lines, and whether they can be signaled."""
    secret = ("environ", "maps", "mem", "auxv", "stack")
    read = [p for pid in pids for name in secret if _can(_read, p := f"/proc/{pid}/{name}")]
    read += [
        p for pid in pids for name in ("fd", "map_files") if _can(os.listdir, p := f"/proc/{pid}/{name}")
    ]
    read += [
        p for pid in pids for name in ("cwd", "root", "exe") if _can(os.readlink, p := f"/proc/{pid}/{name}")
    ]
    signals = (signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL)
    return {"read": read, "written": [pid for pid in pids for n in signals if _can(os.kill, int(pid), n)]}


def control(folder: str) -> list[str]:
    """Steer a run that is somebody else's, with the client that its owner uses."""
    run = LocalRun(Path(folder))
    attempts: dict[str, Callable[[], Any]] = {
        "status": run.status,
        "stop": lambda: run.stop(kill=True),
        "restart": lambda: run._command({"op": "restart", "replicas": [["learner", 0]]}),
        "environment": lambda: run._command({"op": "environment", "role": "learner", "index": 0}),
    }
    return [name for name, attempt in attempts.items() if _can(attempt)]


def reach(*addresses: str) -> list[str]:
    """Which addresses take a connection."""
    found = []
    for address in addresses:
        with contextlib.suppress(OSError), _connected(address, 3):
            found.append(address)
    return found


def raw(address: str) -> str:
    """Greet a port as ZeroMQ does and go on with nonsense; what it says to anybody, in hexadecimal digits."""
    with _connected(address) as connection:
        connection.sendall(_greeting("CURVE"))
        heard = b""
        while len(heard) < 64 and (part := connection.recv(64)):
            heard += part
        connection.sendall(b"\x04\xff" + os.urandom(4096))
        return (heard + _rest(connection)).hex()


def scrape(address: str) -> str:
    """Ask a port for metrics."""
    with _connected(address) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        return _rest(connection).decode()


def _greeting(mechanism: str) -> bytes:
    """ZeroMQ's first 64 bytes."""
    return b"\xff" + bytes(8) + b"\x7f\x03\x01" + mechanism.encode().ljust(20, b"\0") + b"\x01" + bytes(31)


def _connected(address: str, patience: float = 10) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.socket()
    connection.settimeout(patience)
    try:
        connection.connect((host, int(port)))
    except OSError:
        connection.close()
        raise
    return connection


def _rest(connection: socket.socket) -> bytes:
    heard = b""
    with contextlib.suppress(OSError):
        while part := connection.recv(65536):
            heard += part
    return heard


def links(run: str, *addresses: str) -> list[str]:
    """Say hello as a member would, in the clear and with a key of one's own; who answered."""
    answered: list[str] = []
    for keys in (None, Keys(os.urandom(32))):
        with Context(run=run, keys=keys, plaintext=keys is None) as context:
            sockets = {address: context.sockets.link(address) for address in addresses}
            hello = m.Hello(
                protocol=m.PROTOCOL,
                oldest=m.OLDEST_PROTOCOL,
                run=run,
                service="trajectories",
                name="actor/7/actor",
                incarnation=1,
                host="",
                schema=b"",
                body=b"",
            )
            for address, one in sockets.items():
                one.connect(f"tcp://{address}")
                one.send(m.encode(m.HELLO, hello), zmq.NOBLOCK)
            limit = time.monotonic() + 2
            while (left := limit - time.monotonic()) > 0:
                answered += [a for a, one in sockets.items() if one.poll(left * 1000 / len(sockets))]
                if answered:
                    break
    return answered


def doors(*names: str) -> dict[str, list[str]]:
    """Knock at abstract sockets with a proof that is none: what each said, message by message."""
    found = {}
    for name in names:
        said: list[str] = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.settimeout(10)
            one.connect("\0" + name)
            try:
                said.append(one.recv(4096).hex())
                one.send(os.urandom(72))
                while part := one.recv(4096):
                    said.append(part.hex())
            except OSError:
                pass
        found[name] = said
    return found


def squat(*addresses: str) -> list[str]:
    """Take addresses that a run listens on, by every option that might allow it."""
    taken: list[str] = []
    options = ((), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT))
    for address in addresses:
        host, _, port = address.rpartition(":")
        for chosen in options:
            with socket.socket() as one:
                for option in chosen:
                    one.setsockopt(socket.SOL_SOCKET, option, 1)
                try:
                    one.bind((host, int(port)))
                    one.listen()
                    taken.append(address)
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise
    return taken


def hold(address: str, mechanism: str) -> str:
    """Take an address before the run does and offer whoever comes to go on, until told to end; what was heard, in
    hexadecimal digits."""
    host, _, port = address.rpartition(":")
    heard = b""
    with socket.socket() as listener:
        listener.bind((host, int(port)))
        listener.listen()
        print("holding", flush=True)
        while 0 not in (ready := select.select([0, listener], [], [])[0]):
            assert listener in ready
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(1)
                connection.sendall(_greeting(mechanism))
                heard += _rest(connection)
    return heard.hex()


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(1) or b""


def _can(attempt: Callable[..., Any], *arguments: Any) -> bool:
    """Whether it is allowed."""
    try:
        found = attempt(*arguments)
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return False
    except OSError as error:
        if error.errno in (errno.EIO, errno.ESRCH):
            return False
        raise
    if hasattr(found, "close"):
        found.close()
    return True


def main() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
    os.chdir("/")
    attack: Callable[..., Any] = globals()[sys.argv[1]]
    print(json.dumps(attack(*sys.argv[2:])), flush=True)


if __name__ == "__main__":
    main()
