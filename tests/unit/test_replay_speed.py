"""What a draw costs: the tree of sums must not be what a learner waits for."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from callsheet.runtime.replay.server.sum_tree import SumTree


def best(call: Callable[[], object], tries: int = 300) -> float:
    """The quickest of many: others on the machine make it slower, never quicker."""
    found = 1.0
    for _ in range(tries):
        begun = time.perf_counter()
        call()
        found = min(found, time.perf_counter() - begun)
    return found


@pytest.mark.exclusive
def test_256_of_a_million_are_drawn_and_changed_within_200_microseconds() -> None:
    tree, rng = SumTree(1_000_000), np.random.default_rng(0)
    tree.fill(0, 1_000_000, rng.random(1_000_000))
    marks, leaves, weights = rng.random(256), rng.integers(0, 1_000_000, 256), rng.random(256)
    draw, change = best(lambda: tree.find(marks)), best(lambda: tree.set(leaves, weights))
    print(f"\n256 of 1,000,000: drawn in {draw * 1e6:.0f} us, changed in {change * 1e6:.0f} us")
    assert draw < 200e-6
    assert change < 200e-6
