"""Starting processes and learning of their end; nothing of a container outlives its first process.

The supervisor adopts orphans (it is a subreaper), so that a child that forked away, even into a session of its own,
comes back to it when its parent ends, and is ended like everything else of its container.
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

from callsheet.backends.local.supervisor import strays

OnExit = Callable[[int], None]
"""Called with an exit code, or minus the number of the signal that ended the process."""

_PR_SET_CHILD_SUBREAPER = 36
_RESET = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these; a program expects them as the system has them."""
_DYING = 5.0
"""Seconds for which processes that were killed are waited for: one with much memory takes a while to give it back."""

_found: dict[tuple[str, str], str] = {}
"""Programs looked up before, by name and PATH."""


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
        marks: frozenset[bytes] = frozenset(),
    ) -> int:
        """Start a program in a session of its own; its process id. `marks` tell what belongs to its container."""
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
        self._running[pid] = (on_exit, marks)
        return pid

    def register(self, pid: int, on_exit: OnExit) -> None:
        """Watch over a child that was started in another way."""
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
            on_exit, marks = self._running.pop(pid, (None, frozenset[bytes]()))
            if on_exit is not None:
                _signal_group(pid, signal.SIGKILL)  # before it is reaped: its number cannot be another's yet
            os.waitpid(pid, 0)
            if on_exit is None:
                continue
            if marks:
                self.end_orphans(marks)
            on_exit(info.si_status if info.si_code == os.CLD_EXITED else -info.si_status)

    def end_orphans(self, marks: frozenset[bytes]) -> None:
        """Kill adopted processes that carry `marks`, with all their descendants."""
        adopted = [pid for pid in strays.children(os.getpid()) if pid not in self._running]
        ours = [pid for pid in adopted if marks <= strays.environment(pid)]
        strays.send(strays.tree(ours), signal.SIGKILL)

    def kill(self, pid: int) -> None:
        """End a process and all its descendants at once."""
        family = strays.tree([pid])
        _signal_group(pid, signal.SIGKILL)
        strays.send(family, signal.SIGKILL)

    def terminate(self, pid: int) -> None:
        """Ask a process to end, as Kubernetes asks a container: its first process alone."""
        strays.send([pid], signal.SIGTERM)

    def end_all(self, run: str) -> None:
        """Kill whatever is left of a run, adopted processes with a cleared environment included, and see them end."""
        last = time.monotonic() + _DYING
        while left := [pid for pid in strays.children(os.getpid()) if self._is_left(pid)]:
            strays.send(strays.tree(left), signal.SIGKILL)
            if time.monotonic() > last:  # it hangs in the kernel, and nobody can do more about it
                break
            time.sleep(0.002)  # as long as a process takes to give back what it has
        strays.sweep(run, 0.0)

    def _is_left(self, pid: int) -> bool:
        return pid not in self._running and not strays.is_zombie(pid)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def find_program(program: str, env: Mapping[str, str]) -> str:
    """The file that a command means, by the PATH that its process will have."""
    if "/" in program:
        return program
    path = env.get("PATH", os.defpath)
    found = _found.get((program, path)) or shutil.which(program, path=path)
    if found is None:
        raise FileNotFoundError(2, "No such program on PATH", program)
    _found[program, path] = found
    return found
