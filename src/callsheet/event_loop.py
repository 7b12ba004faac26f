"""An event loop in a thread of its own, for code that has none, or is inside one, as in a notebook.

Blocking calls of libraries hold back every signal until they return: Ctrl-C and SIGTERM would wait for a server that is
not there. Their asynchronous calls run here instead, and the caller waits in a way that signals interrupt.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_SLICE = 0.2
_CLOSING = 2.0
_all: weakref.WeakSet[LoopThread] = weakref.WeakSet()


class LoopThread:
    """Starts with the first work; ends, with all tasks, when it is closed."""

    def __init__(self, name: str, before_end: Callable[[], Awaitable[None]] | None = None) -> None:
        self._name = name
        self._before_end = before_end
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Begin again in a forked child, which has none of its parent's threads."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin work; the future tells its outcome and can be cancelled."""
        with self._lock:
            if self._thread is None:
                main = self._main()
                self._thread = threading.Thread(
                    target=asyncio.run, args=(main,), name=self._name, daemon=True
                )
                self._thread.start()
        loop, _ = self._started.result()
        try:
            return asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # the loop has ended, and the interpreter is about to
            work.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do work and wait for it."""
        future = self.start(work)
        try:
            return self.wait(future)
        finally:
            future.cancel()  # if the wait was interrupted

    def wait(self, future: Future[T]) -> T:
        """The outcome of work that was begun. A signal may reach another thread, so this one wakes up to see it."""
        while True:
            try:
                return future.result(_SLICE)
            except TimeoutError:
                if future.done():
                    raise

    def iterate(self, items: AsyncGenerator[T]) -> Iterator[T]:
        """What an asynchronous generator yields."""
        end = object()

        async def following() -> T | object:
            return await anext(items, end)

        try:
            while (item := self.run(following())) is not end:
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
        if self._before_end:
            await self._before_end()


def _forget_all() -> None:
    for one in list(_all):
        one.forget()


os.register_at_fork(after_in_child=_forget_all)
