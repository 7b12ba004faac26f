"""One event loop in a thread of its own, so that a blocking call can be interrupted and has a limit.

obstore's own blocking calls hold back every signal until they return: Ctrl-C and SIGTERM would wait for a server that
is not there. Its asynchronous calls run here instead, and the caller waits in a way that signals interrupt.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_SLICE = 0.2
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def start(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Begin work; the future tells its outcome and can be cancelled."""
    return asyncio.run_coroutine_threadsafe(work, _running())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do work and wait for it."""
    future = start(work)
    try:
        return wait(future)
    except BaseException:
        future.cancel()  # when it was not the work that failed but the wait that was interrupted
        raise


def wait(future: Future[T]) -> T:
    """The outcome of work that was begun. A signal may reach another thread, so this one wakes up to see it."""
    while True:
        try:
            return future.result(_SLICE)
        except TimeoutError:
            if future.done():
                raise


def _running() -> asyncio.AbstractEventLoop:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="callsheet-store", daemon=True).start()
        return _loop


def _forget() -> None:
    """A forked child has none of its parent's threads."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)
