"""Copies the run's folder to its cloud storage, in a child process that may be killed at any time.

The child needs packages and a network, which the supervisor must not depend on. The run's warnings say what could not
be copied; the folder itself is always complete.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from urllib.parse import urlsplit

from callsheet import contract
from callsheet.backends.local.supervisor.processes import Processes

REMOTE = ("s3", "gs", "az")
RESTARTS = 10
"""How often the child is restarted before the copy is given up."""
PAUSE = 0.5


def is_remote(url: str) -> bool:
    """Whether results go to a cloud."""
    return urlsplit(url).scheme in REMOTE


class Results:
    """The copy of a run's folder."""

    def __init__(self, processes: Processes, folder: str, url: str, on_change: Callable[[], None]) -> None:
        self.url = url
        self.problem = ""
        """Why the copy is not complete now, in one sentence."""
        self._processes = processes
        self._folder = folder
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._child: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._command = ""
        """The command that the child has not completed yet."""
        self._answer: asyncio.Future[None] | None = None
        self._buffer = b""

    def start(self) -> None:
        """Start copying."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(contract.PREFIX)}
        self._starts += 1
        self._buffer = b""
        self._child = subprocess.Popen(
            [sys.executable, "-m", "callsheet.store.mirror", self._folder, self.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        assert self._child.stdout
        os.set_blocking(self._child.stdout.fileno(), False)
        self._loop.add_reader(self._child.stdout.fileno(), self._read, self._child)
        self._processes.register(self._child.pid, self._on_exit)
        if self._command:
            self._send()

    async def finish(self) -> None:
        """Copy everything that is there."""
        await self._run("finish")

    async def copy_last_status(self) -> None:
        """Copy the final status, and exit."""
        await self._run("last")

    def abandon(self) -> None:
        """Stop copying: somebody does not want to wait."""
        self._give_up("the run was stopped before the copy was complete")
        if self._child:
            self._processes.kill(self._child.pid)

    async def _run(self, command: str) -> None:
        if self._starts > RESTARTS:
            return
        self._command = command
        self._answer = self._loop.create_future()
        if self._child:
            self._send()
        await self._answer

    def _send(self) -> None:
        assert self._child
        assert self._child.stdin
        try:
            self._child.stdin.write(f"{self._command}\n".encode())
            self._child.stdin.flush()
        except BrokenPipeError:
            return  # it has exited, which we learn in a moment

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout
        data = child.stdout.read()
        if not data:
            self._loop.remove_reader(child.stdout.fileno())
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["problem"] != self.problem:
                self.problem = message["problem"]
                self._on_change()
            if message["answer"]:
                self._done()

    def _done(self) -> None:
        self._command = ""
        if self._answer and not self._answer.done():
            self._answer.set_result(None)

    def _on_exit(self, code: int) -> None:
        child, self._child = self._child, None
        if child:
            child.returncode = code
            self._read(child)
            for pipe in (child.stdin, child.stdout):
                if pipe:
                    self._loop.remove_reader(pipe.fileno())
                    pipe.close()
        if code == 0 or self._starts > RESTARTS:
            self._done()
        elif self._starts == RESTARTS:
            self._give_up("the process that copies it keeps failing; see .callsheet/supervisor.log")
        else:
            self._loop.call_later(PAUSE, self.start)

    def _give_up(self, why: str) -> None:
        self._starts = RESTARTS + 1
        self.problem = why
        self._done()
        self._on_change()
