"""Run two functions at the same time, if there is a core for each.

A matrix product of 256 rows is too small to split: PyTorch's threads wait for each other a hundred times per update, and
any other process on their cores delays both. Two critics and a policy can instead be updated in two threads that meet
three times.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import torch

A = TypeVar("A")
B = TypeVar("B")
_Outcome = tuple[Any, BaseException | None]


class TwoThreads:
    """The caller's thread and a second one. They share the cores that PyTorch may use."""

    def __init__(self, cores: int) -> None:
        self._work: SimpleQueue[Callable[[], Any] | None] | None = None
        self._done: SimpleQueue[_Outcome] = SimpleQueue()
        if cores > 1:
            torch.set_num_threads(cores // 2)
            self._work = SimpleQueue()
            arguments = (cores // 2, self._work, self._done)
            threading.Thread(target=_serve, args=arguments, name="callsheet-second", daemon=True).start()
            weakref.finalize(self, self._work.put, None)

    def run(self, here: Callable[[], A], there: Callable[[], B]) -> tuple[A, B]:
        """Both results. An exception of either is raised when both have ended."""
        if self._work is None:
            return here(), there()
        self._work.put(there)
        try:
            mine = here()
        finally:
            theirs, error = self._done.get()
        if error is not None:
            raise error
        return mine, theirs


def _serve(threads: int, work: SimpleQueue[Callable[[], Any] | None], done: SimpleQueue[_Outcome]) -> None:
    """The second thread. (An executor's futures take 50 us longer than queues written in C.)"""
    torch.set_num_threads(threads)
    while (function := work.get()) is not None:
        try:
            done.put((function(), None))
        except BaseException as error:  # noqa: BLE001 the caller raises it
            done.put((None, error))
        del function  # do not keep what it references until the next one


SEQUENTIAL = TwoThreads(1)
"""Runs one after the other."""
