"""Two things at the same time, where there is a core for each.

A matrix product of 256 rows is too small to be cut in two: PyTorch's threads wait for each other a hundred times in an
update, and any other process on their cores holds both up. An update of two critics and a policy is two
tracks that meet five times.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

A = TypeVar("A")
B = TypeVar("B")


class Pair:
    """One thread beside the caller's; the cores that PyTorch may use are divided among the two."""

    def __init__(self, cores: int) -> None:
        self._other: ThreadPoolExecutor | None = None
        if cores > 1:
            torch.set_num_threads(cores // 2)
            self._other = ThreadPoolExecutor(1, "callsheet-pair", torch.set_num_threads, (cores // 2,))

    def both(self, here: Callable[[], A], there: Callable[[], B]) -> tuple[A, B]:
        """What the two return. An exception of either comes out when both are over."""
        if self._other is None:
            return here(), there()
        waiting = self._other.submit(there)
        try:
            found = here()
        finally:
            waiting.exception()
        return found, waiting.result()


ALONE = Pair(1)
"""One after the other."""
