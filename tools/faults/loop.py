"""One event loop in a thread for all proxies of a process: they must not slow down what they are there to test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="faults-proxies", daemon=True).start()
    return loop


def run(work: Coroutine[Any, Any, T]) -> T:
    """Have the loop do something and wait for it."""
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(30)
