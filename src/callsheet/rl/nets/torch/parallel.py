"""Two things at the same time, where there is a core for each.

A matrix product of 256 rows is too small to be cut in two: PyTorch's threads wait for each other a hundred times in an
update, and any other process on their cores holds both up. An update of two critics and a policy is two
tracks that meet three times.
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
_Told = tuple[Any, BaseException | None]


class Pair:
    """One thread beside the caller's; the cores that PyTorch may use are divided among the two."""

    def __init__(self, cores: int) -> None:
        self._work: SimpleQueue[Callable[[], Any] | None] | None = None
        self._done: SimpleQueue[_Told] = SimpleQueue()
        if cores > 1:
            torch.set_num_threads(cores // 2)
            self._work = SimpleQueue()
            words = (cores // 2, self._work, self._done)
            threading.Thread(target=_serve, args=words, name="callsheet-pair", daemon=True).start()
            weakref.finalize(self, self._work.put, None)

    def both(self, here: Callable[[], A], there: Callable[[], B]) -> tuple[A, B]:
        """What the two return. An exception of either comes out when both are over."""
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


def _serve(threads: int, work: SimpleQueue[Callable[[], Any] | None], done: SimpleQueue[_Told]) -> None:
    """The other thread. (An executor's futures cost 50 us more each time: queues of C are quicker.)"""
    torch.set_num_threads(threads)
    while (asked := work.get()) is not None:
        try:
            done.put((asked(), None))
        except BaseException as error:  # noqa: BLE001 the caller raises it
            done.put((None, error))
        del asked  # what it holds is not kept until the next


ALONE = Pair(1)
"""One after the other."""
