"""A table: what it holds, what it gives, and which keys it still knows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from callsheet.errors import UserError
from callsheet.runtime.link.protocol import BadMessage
from callsheet.runtime.replay import Table
from callsheet.runtime.replay.config import KEY, PROBABILITY
from callsheet.runtime.replay.protocol import MAX_PRIORITY, check_priorities
from callsheet.runtime.replay.server.selectors import Prioritized
from callsheet.runtime.replay.server.table import LiveTable
from callsheet.runtime.schema import Schema

ITEM = Schema.of({"number": np.int64(0), "row": np.zeros(3, np.float32)})


def table(**options: object) -> LiveTable:
    return LiveTable(Table(schema=ITEM, seed=7, **options))  # type: ignore[arg-type]


def insert(into: LiveTable, first: int, count: int, priority: object = np.nan) -> None:
    numbers = np.arange(first, first + count)
    items = {"number": numbers, "row": np.repeat(numbers[:, None], 3, 1).astype(np.float32)}
    done = 0
    while done < count:
        room = into.insertable(count - done)
        assert room
        into.insert(items, done, np.broadcast_to(np.float32(priority), count)[done : done + room])
        done += room


def sample(of: LiveTable, count: int) -> dict[str, NDArray[np.generic]]:
    assert of.sample_schema is not None
    layout = of.sample_schema.layout(count)
    arrays = layout.views(memoryview(bytearray(layout.nbytes)))
    of.sample(count, arrays)
    assert np.array_equal(arrays["row"][:, 2], arrays["number"].astype(np.float32))
    return arrays


@given(
    kind=st.sampled_from(["uniform", "prioritized"]),
    items=st.integers(1, 300),
    inserts=st.lists(st.integers(1, 400), min_size=1, max_size=12),
)
def test_it_holds_the_newest_items(kind: str, items: int, inserts: list[int]) -> None:
    one = table(kind=kind, items=items)
    total = 0
    for count in inserts:
        insert(one, total, count)
        total += count
        assert one.size == min(items, total)
        numbers = sample(one, 50)["number"]
        assert numbers.min() >= total - one.size
        assert numbers.max() < total
    assert one.counts.evicted == total - one.size


@given(
    items=st.integers(2, 200),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=60),
)
def test_a_queue_gives_each_item_once_and_in_order(items: int, steps: list[tuple[bool, int]]) -> None:
    queue = table(kind="fifo", items=items)
    put, taken = 0, []
    for inserting, count in steps:
        if inserting:
            count = queue.insertable(count)
            assert count <= items - queue.size
            if count:
                insert(queue, put, count)
                put += count
        elif queue.can_sample(count):
            taken += sample(queue, count)["number"].tolist()
    assert taken == list(range(len(taken)))
    assert queue.size == put - len(taken)
    assert queue.counts.evicted == 0


def test_a_full_queue_says_that_it_is_full() -> None:
    queue = table(kind="fifo", items=4)
    insert(queue, 0, 4)
    assert queue.insertable(1) == 0
    assert queue.why_no_insert() == "inserts wait for samples: the queue is full with 4 items"


def test_bytes_bound_a_table_as_items_do() -> None:
    assert table(items=1000, bytes=20 * 50).ring.capacity == 50
    with pytest.raises(UserError, match="room for 0 items of 20 bytes"):
        table(bytes=19)


def test_prioritized_draws_follow_the_priorities() -> None:
    """Chi-square: the counts of 200,000 draws are where they belong, five standard deviations allowed."""
    alpha, items = 0.7, 200
    one = table(kind="prioritized", items=items, alpha=alpha)
    priorities = np.random.default_rng(3).random(items).astype(np.float32) * 10
    insert(one, 0, items, priorities)
    wanted = priorities.astype(np.float64) ** alpha
    wanted /= wanted.sum()
    counts = np.zeros(items)
    for _ in range(200):
        drawn = sample(one, 1000)
        counts += np.bincount(drawn["number"].astype(int), minlength=items)
        assert np.allclose(drawn[PROBABILITY].astype(float), wanted[drawn["number"].astype(int)])
    expected = wanted * 200_000
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert abs(statistic - (items - 1)) < 5 * math.sqrt(2 * (items - 1))


def test_uniform_draws_are_even() -> None:
    one = table(kind="uniform", items=100)
    insert(one, 0, 250)
    counts = np.bincount(sample(one, 60_000)["number"].astype(int) - 150, minlength=100)
    statistic = float(((counts - 600.0) ** 2 / 600.0).sum())
    assert abs(statistic - 99) < 5 * math.sqrt(2 * 99)


def test_new_items_get_the_largest_priority_so_far() -> None:
    one = table(kind="prioritized", items=10, alpha=1.0)
    insert(one, 0, 1)
    assert one.total_weight == 1.0
    insert(one, 1, 1, 5.0)
    insert(one, 2, 1)
    assert one.total_weight == 1.0 + 5.0 + 5.0


@given(
    priorities=st.lists(st.floats(0, 2.0**90, width=32), min_size=2, max_size=30),
    alpha=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_items_that_come_one_by_one_are_worth_the_same_as_together(
    priorities: list[float], alpha: float
) -> None:
    together, single = (table(kind="prioritized", items=64, alpha=alpha) for _ in range(2))
    numbers = np.arange(len(priorities) + 1)
    items = {"number": numbers, "row": np.repeat(numbers[:, None], 3, 1).astype(np.float32)}
    given = np.array([*priorities, np.nan], np.float32)
    together.insert(items, 0, given)
    for number in numbers:
        single.insert(items, int(number), given[number : number + 1])
    ours, theirs = single.selector, together.selector
    assert isinstance(ours, Prioritized)
    assert isinstance(theirs, Prioritized)
    assert ours.max_priority == theirs.max_priority
    assert np.array_equal(ours.priorities(0, len(given)), theirs.priorities(0, len(given)))
    assert single.total_weight == pytest.approx(together.total_weight, rel=1e-12)
    assert np.array_equal(sample(single, 20)["number"], sample(together, 20)["number"])


@pytest.mark.parametrize("wrong", [-1.0, -math.inf, math.inf, 2 * MAX_PRIORITY])
@pytest.mark.parametrize("others", [[], [1.0, math.nan]], ids=["alone", "among others"])
def test_a_priority_that_cannot_be_is_refused(wrong: float, others: list[float]) -> None:
    check_priorities(np.array(others, np.float32))
    check_priorities(np.array([math.nan], np.float32))
    with pytest.raises(BadMessage, match="negative or too large"):
        check_priorities(np.array([*others, wrong], np.float32))


def test_an_item_with_priority_zero_is_never_drawn() -> None:
    one = table(kind="prioritized", items=10, alpha=0.0)
    insert(one, 0, 5, 0.0)
    assert not one.can_sample(1)
    assert one.why_no_sample(1) == "samples wait for priorities: those of all 5 items are 0"
    insert(one, 5, 1, 1.0)
    assert set(sample(one, 100)["number"].tolist()) == {5}


def test_priorities_change_by_key_and_keys_of_items_that_are_gone_are_counted() -> None:
    one = table(kind="prioritized", items=8, alpha=1.0)
    insert(one, 0, 8, 1.0)
    keys = sample(one, 64)[KEY].astype(np.uint64)
    one.update(np.unique(keys), np.zeros(8, np.float32))
    assert one.total_weight == 0.0
    insert(one, 8, 4, 1.0)
    one.update(np.unique(keys), np.full(8, 2.0, np.float32))
    assert one.counts.stale == 4
    assert one.total_weight == 4 * 2.0 + 4 * 1.0


def test_a_key_of_an_earlier_life_does_not_hit_an_item_that_took_its_place() -> None:
    one = table(kind="prioritized", items=8, alpha=1.0)
    one.begin_epoch(3)
    insert(one, 0, 4, 1.0)
    lost = np.unique(sample(one, 64)[KEY].astype(np.uint64))
    again = table(kind="prioritized", items=8, alpha=1.0)
    again.epochs = [(0, 3)]
    insert(again, 0, 2, 1.0)
    again.begin_epoch(3)
    insert(again, 100, 2, 1.0)
    again.update(lost, np.full(4, 9.0, np.float32))
    assert again.counts.stale == 2
    assert again.total_weight == 2 * 9.0 + 2 * 1.0


def test_keys_made_up_by_a_stranger_do_no_harm() -> None:
    one = table(kind="prioritized", items=8)
    insert(one, 0, 4, 1.0)
    strange = np.random.default_rng(0).integers(0, 1 << 63, 1000).astype(np.uint64) | np.uint64(1 << 40)
    one.update(strange, np.full(1000, 5.0, np.float32))
    assert one.counts.stale == 1000
    assert one.total_weight == 4.0


def test_draws_can_be_repeated_with_a_seed() -> None:
    first, second = table(kind="prioritized"), table(kind="prioritized")
    for one in (first, second):
        insert(one, 0, 1000, np.arange(1000))
    assert np.array_equal(sample(first, 100)["number"], sample(second, 100)["number"])


def test_lengths_that_differ_are_refused_with_the_way_out() -> None:
    loose = Schema.of({"x": np.zeros((5, 2))}, free={"x": (0,)})
    with pytest.raises(UserError, match=r"callsheet\.runtime\.replay\.cut"):
        LiveTable(Table()).allocate(loose)


@pytest.mark.parametrize("name", [KEY, PROBABILITY, "replay.priority"])
def test_the_names_that_travel_with_items_are_taken(name: str) -> None:
    with pytest.raises(UserError, match="is a reserved array name"):
        LiveTable(Table()).allocate(Schema.of({name: np.zeros(1)}))
