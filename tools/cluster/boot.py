"""The first process of a machine of the cluster, because a machine should live and die as one thing.

A unit (a node, or the control plane) has its own process, mount, network, host-name and IPC namespaces. This program
makes them and then is process 1 inside: it starts the unit's programs, starts them again when they end, and reaps
what they leave behind. When it dies, for whatever reason, the kernel ends everything in the unit, the shims of
containerd included, and removes its mounts and its network. It is run as a script, by path, and imports nothing of the tool.

    boot.py SPEC.json < pipe      prints its process id; begins when a line comes, ends when the pipe closes before
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x20000000,
    0x40000000,
)
MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 4096, 16384, 1 << 18, 1 << 20
WAKE = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
RESTART_AFTER_S = 1.0
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0) -> None:
    _check(_libc.mount(source.encode(), target.encode(), kind.encode(), flags, None), f"mount {target}")


def enter_namespaces(cgroups: list[str]) -> int:
    """Join the unit's cgroups, make the namespaces, and fork process 1 into them; its id, or 0 inside."""
    for procs in cgroups:
        Path(procs).write_text(str(os.getpid()))
    flags = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    _check(_libc.unshare(flags), "unshare")
    return os.fork()


def furnish(spec: dict[str, Any]) -> None:
    """The unit's own view of the file system: nothing that is mounted in it is seen outside of it."""
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("none", "/", flags=MS_REC | MS_SHARED)
    mount("proc", "/proc", "proc")
    for step in spec["mounts"]:
        if step["kind"] == "bind":
            mount(step["source"], step["target"], flags=MS_BIND | MS_REC)
        else:
            mount(step["kind"], step["target"], step["kind"])
        for folder in step.get("folders", ()):
            Path(step["target"], folder).mkdir(parents=True, exist_ok=True)
    socket.sethostname(spec["hostname"])
    for path, value in spec["settings"].items():
        Path(path).write_text(value)


class Part:
    """One program of the unit: started when what it needs is there, started again when it ends."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.name: str = spec["name"]
        self.argv: list[str] = spec["argv"]
        self.env: dict[str, str] = spec["env"]
        self.log: str = spec["log"]
        self.needs: list[str] = spec["needs"]
        self.after: list[str] = spec["after"]
        self.once: bool = spec["once"]
        self.off: str = spec["off"]
        self.pid = 0
        self.done = False
        self.not_before = 0.0

    def may_start(self, parts: dict[str, Part]) -> bool:
        return (
            not self.pid
            and not self.done
            and time.monotonic() >= self.not_before
            and not os.path.exists(self.off)
            and all(os.path.exists(path) for path in self.needs)
            and all(parts[name].done for name in self.after)
        )

    def start(self) -> None:
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        actions = [(os.POSIX_SPAWN_OPEN, 1, self.log, append, 0o644), (os.POSIX_SPAWN_DUP2, 1, 2)]
        self.pid = os.posix_spawnp(
            self.argv[0],
            self.argv,
            self.env,
            file_actions=actions,
            setsigmask=[],
            setsigdef=WAKE,
            setsid=True,
        )

    def ended(self, code: int) -> None:
        self.pid = 0
        self.done = self.once and code == 0
        self.not_before = time.monotonic() + RESTART_AFTER_S
        if not self.done:
            print(f"{time.strftime('%H:%M:%S')} {self.name} ended with {code}", flush=True)


def reaped() -> Iterator[tuple[int, int]]:
    """Every child that has ended; orphans of the unit's programs come to process 1 too."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def supervise(spec: dict[str, Any]) -> None:
    """Keep the programs running until told to end; leaving process 1 ends the whole unit."""
    parts = {part["name"]: Part(part) for part in spec["parts"]}
    while True:
        for part in parts.values():
            if part.may_start(parts):
                part.start()
            elif part.pid and os.path.exists(part.off):
                os.kill(part.pid, signal.SIGKILL)
        wake = signal.sigtimedwait(WAKE, 0.1)
        if wake is not None and wake.si_signo in (signal.SIGTERM, signal.SIGINT):
            return
        for pid, code in reaped():
            for part in parts.values():
                if part.pid == pid:
                    part.ended(code)


def main() -> None:
    spec: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    signal.pthread_sigmask(signal.SIG_BLOCK, WAKE)
    child = enter_namespaces(spec["cgroups"])
    if child:
        print(child, flush=True)
        return
    os.setsid()
    log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    furnish(spec)
    # The line says that the network cable has been plugged in; without it whoever started us is gone.
    if not sys.stdin.readline():
        return
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    supervise(spec)


if __name__ == "__main__":
    main()
