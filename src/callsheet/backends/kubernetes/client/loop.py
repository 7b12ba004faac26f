"""An event loop on a thread of its own, for command lines and notebooks that have none, or are inside one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_CLOSING = 2.0


class LoopThread:
    """Starts with the first work; ends, with all tasks, when it is closed."""

    def __init__(self, before_end: Callable[[], Awaitable[None]]) -> None:
        self._before_end = before_end
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin some work; cancelling the future ends it."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=lambda: asyncio.run(self._main()), name="callsheet-kubernetes", daemon=True
                )
                self._thread.start()
        loop, _ = self._started.result()
        try:
            return asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # the interpreter is ending
            work.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the result of some work."""
        future = self.start(work)
        try:
            return future.result()
        finally:
            future.cancel()  # if whoever waits was interrupted

    def iterate(self, items: AsyncGenerator[T]) -> Iterator[T]:
        """What an asynchronous generator yields."""
        end = object()
        try:
            while (item := self.run(_next(items, end))) is not end:
                yield item  # type: ignore[misc]
        finally:
            self.run(items.aclose())

    def close(self) -> None:
        """End the loop."""
        if self._thread is not None:
            loop, over = self._started.result()
            loop.call_soon_threadsafe(over.set)
            if self._thread is not threading.current_thread():
                self._thread.join(_CLOSING)

    async def _main(self) -> None:
        over = asyncio.Event()
        self._started.set_result((asyncio.get_running_loop(), over))
        await over.wait()
        await self._before_end()


async def _next(items: AsyncGenerator[T], end: object) -> T | object:
    return await anext(items, end)
