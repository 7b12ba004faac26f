"""Entry of the supervisor: ``python -m callsheet.backends.local.supervisor FOLDER``.

The folder holds the plan. The parent passes descriptors: one to report that the run has started (or why it has not),
one that is closed when the parent exits, and the sockets that reserve the run's addresses.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from typing import Any

from callsheet import contract
from callsheet.backends.local.supervisor.control import ControlServer
from callsheet.backends.local.supervisor.files import Layout, limit_log, write_atomically
from callsheet.backends.local.supervisor.gpus import GpuPool
from callsheet.backends.local.supervisor.guard import CLEAN_EXIT
from callsheet.backends.local.supervisor.results import Results, is_remote
from callsheet.backends.local.supervisor.run import RunState
from callsheet.descriptors import raise_descriptor_limit
from callsheet.errors import CallsheetError
from callsheet.lifecycle.verdict import Verdict
from callsheet.plan.model import plan_from_data

STATUS_PAUSE = 0.2
"""Seconds between two writes of the status file, at least."""
LOG_LIMIT = 1024 * 1024
"""Bytes of the supervisor's own log; the previous one is kept too."""
LOG_PAUSE = 1.0
"""Seconds between two checks of its size."""
LINGER = 0.3
"""Seconds for which the control socket stays after the end, so that clients see the final status."""


class Supervisor:
    """Connects the run with the outside: status file, address file, control socket, signals, guard."""

    def __init__(self, layout: Layout, options: dict[str, Any]) -> None:
        self.layout = layout
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.done = asyncio.Event()
        with open(layout.plan, encoding="utf-8") as file:
            plan = plan_from_data(json.load(file))
        gpus = GpuPool(options["gpus"])
        self.run = RunState(plan, str(layout.folder), gpus, self._changed)
        self.control = ControlServer(self.run, layout.socket)
        self._written: object = None
        self._pending = False
        self._guard: subprocess.Popen[bytes] | None = None
        self._closing: asyncio.Task[None] | None = None

    async def supervise(self) -> None:
        """Run to the end."""
        os.chdir(self.run.plan.workdir)
        self._write_addresses()
        await self.control.start()
        self._start_guard()
        self._start_copying()
        self._handle_signals()
        self._limit_log()
        self.run.start()
        self._write_status()
        self._report_to_parent({"started": True})
        await self.done.wait()
        self._write_last_status()
        await asyncio.sleep(LINGER)
        self._release_guard()
        os.unlink(self.layout.socket)

    def _handle_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            reason = f"its supervisor received {number.name}"
            self.loop.add_signal_handler(number, self._stop, reason, contract.EXIT_STOPPED)
        parent = self.options["parent"]
        if parent is not None:
            self.loop.add_reader(parent, self._parent_exited, parent)

    def _parent_exited(self, parent: int) -> None:
        self.loop.remove_reader(parent)
        self._stop("the program that started it exited", contract.EXIT_STOPPED)

    def _stop(self, reason: str, code: int) -> None:
        self.run.stop(Verdict("Stopped", reason, code))

    def _report_to_parent(self, message: dict[str, Any]) -> None:
        fd = self.options["ready"]
        os.write(fd, json.dumps(message).encode())
        os.close(fd)

    def _limit_log(self) -> None:
        limit_log(self.layout.supervisor_log, LOG_LIMIT)
        self.loop.call_later(LOG_PAUSE, self._limit_log)

    def _changed(self) -> None:
        self.control.notify()
        if self.run.finished:
            self.done.set()
        if self.run.address_book is not self._written:
            self._write_addresses()
        if not self._pending:
            self._pending = True
            self.loop.call_later(STATUS_PAUSE, self._write_status)

    def _write_status(self) -> None:
        self._pending = False
        write_atomically(self.layout.status, json.dumps(self.run.status().to_data()))

    def _write_last_status(self) -> None:
        """The final status must be written: if the disk is too full for a new file, overwrite the old one."""
        text = json.dumps(self.run.status(ended=True).to_data())
        if not write_atomically(self.layout.status, text):
            with contextlib.suppress(OSError), open(self.layout.status, "w", encoding="utf-8") as file:
                file.write(text)

    def _write_addresses(self) -> None:
        address_book = self.run.address_book
        if write_atomically(
            self.layout.addresses, json.dumps(address_book | {"generation": self.run.generation})
        ):
            self._written = address_book

    def _start_copying(self) -> None:
        """With a cloud storage, the folder is copied there; the run ends when the copy is complete."""
        url = self.run.plan.storage
        if is_remote(url):
            results = self.run.results = Results(
                self.run.processes, str(self.layout.folder), url, self.run.changed
            )
            self.run.on_all_ended = lambda: self._close(results)
            results.start()

    def _close(self, results: Results) -> None:
        async def close() -> None:
            await results.finish()
            self._write_last_status()
            await results.copy_last_status()
            self.run.finish()

        self.run.changed()
        self._closing = self.loop.create_task(close())

    def _start_guard(self) -> None:
        module = "callsheet.backends.local.supervisor.guard"
        arguments = [self.run.plan.run, self.layout.status, self.layout.socket]
        env = {name: value for name, value in os.environ.items() if not name.startswith(contract.PREFIX)}
        self._guard = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            pass_fds=self.options["reservations"],
            env=env,
            start_new_session=True,
        )
        self.run.processes.register(self._guard.pid, self._guard_ended)

    def _guard_ended(self, code: int) -> None:
        """Somebody killed the guard: start another."""
        if self._guard:
            self._guard.returncode = code
            if self._guard.stdin:
                self._guard.stdin.close()
        if not self.done.is_set():
            self._start_guard()

    def _release_guard(self) -> None:
        if self._guard and self._guard.stdin:
            self._guard.stdin.write(CLEAN_EXIT)
            self._guard.stdin.close()


async def _main(folder: str, options: dict[str, Any]) -> None:
    for fd in (options["ready"], options["parent"], *options["reservations"]):
        if fd is not None:
            os.set_inheritable(fd, False)  # for the supervisor, not for replicas
    supervisor = Supervisor(Layout(folder), options)
    gc.freeze()  # the plan lives as long as the process, so collections need not look at it
    try:
        await supervisor.supervise()
    except CallsheetError as error:
        supervisor._report_to_parent({"error": error.message, "fix": error.fix})
        supervisor._release_guard()


if __name__ == "__main__":
    raise_descriptor_limit()
    asyncio.run(_main(sys.argv[1], json.loads(sys.argv[2])))
