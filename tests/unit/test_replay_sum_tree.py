"""Draws by weight: the tree gives what a plain running sum gives, and never an item without weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.runtime.replay.server.sum_tree import SumTree

WEIGHTS = st.floats(0, 1e6, allow_subnormal=False)


@given(
    leaves=st.integers(1, 5000),
    changes=st.lists(st.tuples(st.integers(0, 4999), WEIGHTS), min_size=1, max_size=200),
    marks=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=50),
)
def test_finds_what_a_running_sum_finds(
    leaves: int, changes: list[tuple[int, float]], marks: list[float]
) -> None:
    plain, tree = np.zeros(leaves), SumTree(leaves)
    for leaf, weight in changes:
        plain[leaf % leaves] = weight
    where = np.array([leaf % leaves for leaf, _ in changes])
    tree.set(where, np.array([weight for _, weight in changes]))
    assert tree.total == pytest.approx(plain.sum())
    assert np.array_equal(tree.weights(np.arange(leaves)), plain)
    if plain.sum() > 0:
        found = tree.find(np.array(marks))
        assert (plain[found] > 0).all(), "a leaf without weight was found"
        running = plain.cumsum()
        near = 1e-9 * running[-1]
        for mark, leaf in zip(np.array(marks) * running[-1], found, strict=True):
            assert running[leaf] - plain[leaf] - near <= mark <= running[leaf] + near


@given(
    leaves=st.integers(1, 5000),
    fills=st.lists(st.tuples(st.integers(0, 4999), st.integers(1, 700), WEIGHTS), min_size=1, max_size=20),
)
def test_neighbors_are_filled_as_one_by_one(leaves: int, fills: list[tuple[int, int, float]]) -> None:
    at_once, one_by_one = SumTree(leaves), SumTree(leaves)
    for start, count, weight in fills:
        start %= leaves
        stop = min(leaves, start + count)
        at_once.fill(start, stop, weight)
        one_by_one.set(np.arange(start, stop), np.full(stop - start, weight))
    assert at_once.total == one_by_one.total
    assert np.array_equal(at_once.weights(np.arange(leaves)), one_by_one.weights(np.arange(leaves)))


@pytest.mark.parametrize("leaves", [1, 16, 17, 4096, 4097, 70_000])
def test_the_ends_of_the_scale_are_safe(leaves: int) -> None:
    tree = SumTree(leaves)
    tree.set(np.array([leaves // 2]), np.array([1e-12]))
    marks = np.array([0.0, 0.5, np.nextafter(1.0, 0.0), 1.0])
    assert set(tree.find(marks)) == {leaves // 2}


def test_a_million_changes_leave_no_drift() -> None:
    tree, rng = SumTree(1000), np.random.default_rng(1)
    for _ in range(1000):
        tree.set(rng.integers(0, 1000, 1000), rng.random(1000) * 1e9)
    tree.fill(0, 1000, 0.0)
    assert tree.total == 0.0
