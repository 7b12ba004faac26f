"""The guard: a tiny process that cleans up if the supervisor is killed.

It waits on a pipe from the supervisor. If the pipe ends without the message of a clean exit, the supervisor was killed:
the guard ends every process of the run and records that the run has failed. It also inherits the sockets that reserve
the run's addresses, so that no other run gets them before the last process is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any

from callsheet import contract
from callsheet.backends.local.supervisor.files import write_atomically
from callsheet.backends.local.supervisor.procfs import end_run

CLEAN_EXIT = b"bye"
LOST = "its supervisor was killed, and then its processes were ended"
GRACE = 0.8
"""Seconds from SIGTERM to SIGKILL: everything is over within two."""


def main(run: str, status: str, socket: str) -> None:
    """Wait until the supervisor exits, then clean up if it was killed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    received = b""
    while chunk := os.read(0, 64):
        received = (received + chunk)[-len(CLEAN_EXIT) :]
    if received == CLEAN_EXIT:
        return
    end_run(run, GRACE)
    mark_lost(status)
    with contextlib.suppress(OSError):
        os.unlink(socket)


def mark_lost(path: str) -> dict[str, Any] | None:
    """Record in a run's status that it failed because its supervisor is gone; returns that status, even if unwritten."""
    try:
        with open(path, "rb") as file:
            status: dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        return None
    status.update(phase="Failed", reason=LOST, exit_code=contract.EXIT_SUPERVISOR_LOST, finished=time.time())
    for role in status["roles"]:
        role["ready"] = 0
    for replica in status["replicas"]:
        if replica["phase"] not in ("Succeeded", "Failed", "Stopped"):
            replica.update(phase="Stopped", ready=False, reason=LOST)
        for container in replica["containers"]:
            container.update(pid=0, ready=False)
    write_atomically(path, json.dumps(status))
    return status


if __name__ == "__main__":
    main(*sys.argv[1:4])
