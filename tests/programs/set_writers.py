"""Starts a writer of sets for every line it reads: ``python set_writers.py URL``, then a line each.

A writer takes over the row of sets, goes on from the latest, and tells every set that is safely stored on a line of
its own. It goes on until it is killed or another writer has taken over. (Forking saves the start of an interpreter.)
"""

from __future__ import annotations

import os
import signal
import sys

import callsheet.store.object_backend  # noqa: F401 - before forking, so that every writer starts quickly
from callsheet.store import Fenced, claim, latest, open_store


def say(*words: object) -> None:
    """One whole line: a pipe takes so few bytes at once or not at all."""
    os.write(1, (" ".join(map(str, (os.getpid(), *words))) + "\n").encode())


def write(url: str) -> None:
    """One writer's life."""
    store = open_store(url)
    writer = claim(store)
    before = latest(store)
    step = int(before.info["step"]) if before else 0
    say("from", writer.fence, step)
    try:
        while True:
            step += 1
            with writer.write_set(f"step-{step}", info={"step": step}) as parts:
                parts.put("a", b"%d" % step * 1_000)
                parts.put("b", b"%d" % step * 20_000)
            say("stored", writer.fence, step)
            if step % 5 == 0:
                writer.keep(3)
    except Fenced:
        say("fenced", writer.fence, step)


def main(url: str) -> None:
    """One child for each line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for _ in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            write(url)
            os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
