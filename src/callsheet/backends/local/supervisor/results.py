"""Keeps a copy of the run's folder in its storage in a cloud, by a child process that may be killed at any time.

The child needs packages and a network, of which the supervisor must not depend. What could not be copied is said in
the run's warnings; the folder itself is complete in any case.
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
"""How often the child is started again before its work is given up."""
PAUSE = 0.5


def is_remote(url: str) -> bool:
    """Whether results go somewhere else than to a folder."""
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
        self._word = ""
        """What the child was told to do and has not done."""
        self._answer: asyncio.Future[None] | None = None
        self._heard = b""

    def start(self) -> None:
        """Begin to copy."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(contract.PREFIX)}
        self._starts += 1
        self._heard = b""
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
        self._processes.register(self._child.pid, self._ended)
        if self._word:
            self._send()

    async def finish(self) -> None:
        """Copy all that there is; what is not copied by then is lost there."""
        await self._ask("finish")

    async def last(self) -> None:
        """Copy the last status, and end."""
        await self._ask("last")

    def abandon(self) -> None:
        """Copy no more: somebody does not want to wait."""
        self._give_up("it was not waited for")
        if self._child:
            self._processes.kill(self._child.pid)

    async def _ask(self, word: str) -> None:
        if self._starts > RESTARTS:
            return
        self._word = word
        self._answer = self._loop.create_future()
        if self._child:
            self._send()
        await self._answer

    def _send(self) -> None:
        assert self._child
        assert self._child.stdin
        try:
            self._child.stdin.write(f"{self._word}\n".encode())
            self._child.stdin.flush()
        except BrokenPipeError:
            return  # it has ended, which is heard of in a moment

    def _read(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout
        data = child.stdout.read()
        if not data:
            self._loop.remove_reader(child.stdout.fileno())
            return
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if told["problem"] != self.problem:
                self.problem = told["problem"]
                self._on_change()
            if told["answer"]:
                self._done()

    def _done(self) -> None:
        self._word = ""
        if self._answer and not self._answer.done():
            self._answer.set_result(None)

    def _ended(self, code: int) -> None:
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
            self._give_up("what copies it ended again and again; see .callsheet/supervisor.log")
        else:
            self._loop.call_later(PAUSE, self.start)

    def _give_up(self, why: str) -> None:
        self._starts = RESTARTS + 1
        self.problem = why
        self._done()
        self._on_change()
