"""Starts processes and reaps them; nothing of a container outlives its first process.

The supervisor is a subreaper: a child that forked away, even into its own session, becomes its child when its parent
exits, and is killed with the rest of its container.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from callsheet.backends.local.supervisor import procfs

OnExit = Callable[[int], None]
"""Called with an exit code, or minus the number of the signal that ended the process."""

_PR_SET_CHILD_SUBREAPER = 36
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these; programs expect the default."""
_DYING = 5.0
"""Seconds to wait for killed processes: one with much memory takes a while to exit."""

_programs: dict[tuple[str, str], str] = {}
"""Paths of programs, by name and PATH."""


class Processes:
    """All children of the supervisor."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._running: dict[int, tuple[OnExit, frozenset[bytes]]] = {}
        self._loop = loop
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)

    def start(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        output: int,
        on_exit: OnExit,
        identity: frozenset[bytes] = frozenset(),
    ) -> int:
        """Start a program in its own session; returns its process id. `identity`: the variables of its container."""
        program = find_program(command[0], env)
        with open(os.devnull, "rb") as null:
            if sys.platform == "linux":
                pid = os.posix_spawn(
                    program,
                    list(command),
                    env,
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate((null.fileno(), output, output))
                    ],
                    setsid=True,
                    setsigmask=(),
                    setsigdef=_RESET,
                )
            else:
                argv = [program, *command[1:]]
                child = subprocess.Popen(
                    argv, env=env, stdin=null, stdout=output, stderr=output, start_new_session=True
                )
                child.returncode = 0  # reaped here, not by the object
                pid = child.pid
        self._running[pid] = (on_exit, identity)
        return pid

    def register(self, pid: int, on_exit: OnExit) -> None:
        """Reap a child that was started in another way."""
        self._running[pid] = (on_exit, frozenset())

    def _reap(self) -> None:
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None:
                return
            pid = info.si_pid
            on_exit, identity = self._running.pop(pid, (None, frozenset[bytes]()))
            if on_exit is not None:
                _signal_group(
                    pid, signal.SIGKILL
                )  # before it is reaped: its id cannot belong to another process yet
            os.waitpid(pid, 0)
            if on_exit is None:
                continue
            if identity:
                self.end_orphans(identity)
            on_exit(info.si_status if info.si_code == os.CLD_EXITED else -info.si_status)

    def end_orphans(self, identity: frozenset[bytes]) -> None:
        """Kill adopted processes with these variables, and all their descendants."""
        adopted = [pid for pid in procfs.children(os.getpid()) if pid not in self._running]
        ours = [pid for pid in adopted if identity <= procfs.environment(pid)]
        procfs.send_signal(procfs.with_descendants(ours), signal.SIGKILL)

    def kill(self, pid: int) -> None:
        """Kill a process and all its descendants."""
        family = procfs.with_descendants([pid])
        _signal_group(pid, signal.SIGKILL)
        procfs.send_signal(family, signal.SIGKILL)

    def terminate(self, pid: int) -> None:
        """Send SIGTERM to a process and not to its children, as Kubernetes does."""
        procfs.send_signal([pid], signal.SIGTERM)

    def end_all(self, run: str) -> None:
        """Kill whatever is left of a run, even adopted processes with a cleared environment, and wait for them."""
        last = time.monotonic() + _DYING
        while left := [pid for pid in procfs.children(os.getpid()) if self._is_left(pid)]:
            procfs.send_signal(procfs.with_descendants(left), signal.SIGKILL)
            if time.monotonic() > last:  # it hangs in the kernel
                break
            time.sleep(0.002)  # about as long as a process takes to exit
        procfs.end_run(run, 0.0)

    def _is_left(self, pid: int) -> bool:
        return pid not in self._running and not procfs.is_zombie(pid)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def find_program(program: str, env: Mapping[str, str]) -> str:
    """The path of a program, looked up on the PATH that its process will have."""
    if "/" in program:
        return program
    path = env.get("PATH", os.defpath)
    file = _programs.get((program, path)) or shutil.which(program, path=path)
    if file is None:
        raise FileNotFoundError(2, "No such program on PATH", program)
    _programs[program, path] = file
    return file
