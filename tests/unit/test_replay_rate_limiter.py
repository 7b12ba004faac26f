"""Samples and inserts in step: within the tolerance, and never both waiting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callsheet.errors import UserError
from callsheet.runtime.replay import Table
from callsheet.runtime.replay.server.rate_limiter import RateLimiter


@given(
    min_size=st.integers(1, 50),
    ratio=st.floats(0.01, 64),
    tolerance=st.floats(0.1, 500),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 300)), max_size=200),
)
def test_somebody_may_always_go_on_and_the_bounds_hold(
    min_size: int, ratio: float, tolerance: float, steps: list[tuple[bool, int]]
) -> None:
    limiter = RateLimiter(min_size, ratio, tolerance)
    largest = max((count for _, count in steps), default=1)
    for inserts, count in steps:
        size = limiter.inserted
        assert limiter.allowed_inserts(size, 1) or limiter.can_sample(size), "both sides wait for each other"
        if inserts:
            limiter.inserted += limiter.allowed_inserts(size, count)
        elif limiter.can_sample(size):
            limiter.sampled += count
        if limiter.inserted > min_size:
            assert limiter.surplus <= tolerance + ratio + 1e-6
        assert limiter.sampled == 0 or limiter.surplus >= -tolerance - largest - 1e-6


def test_sampling_begins_at_the_minimum_size() -> None:
    limiter = RateLimiter(min_size=100)
    assert not limiter.can_sample(99)
    assert limiter.can_sample(100)
    assert limiter.why_no_sample(99) == "samples wait for items: there are 99 of 100"


def test_without_a_ratio_inserts_never_wait() -> None:
    assert RateLimiter().allowed_inserts(10**9, 1024) == 1024


def test_it_says_who_waits_for_whom() -> None:
    limiter = RateLimiter(min_size=1, ratio=4.0, tolerance=8.0, inserted=100, sampled=0)
    assert limiter.allowed_inserts(100, 10) == 0
    assert limiter.why_no_insert() == (
        "inserts wait for samples: 0 samples of 100 inserts, and 4 for each insert are wanted"
    )
    limiter.sampled = 1000
    assert not limiter.can_sample(100)
    assert limiter.why_no_sample(100).startswith("samples wait for inserts: 1,000 samples of 100 inserts")


def test_the_usual_tolerance_is_a_tenth_of_what_the_first_items_allow() -> None:
    assert Table(samples_per_insert=8, min_size=1000).limiter().tolerance == 800
    assert Table(samples_per_insert=8, min_size=1).limiter().tolerance == 8
    assert Table(samples_per_insert=8, tolerance=64).limiter().tolerance == 64


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "prioritised"},
        {"items": 0},
        {"bytes": 0},
        {"alpha": -1},
        {"min_size": 0},
        {"samples_per_insert": 0},
        {"samples_per_insert": 2, "tolerance": 0},
        {"items": 10, "min_size": 11},
        {"name": ""},
    ],
)
def test_a_table_that_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError) as refused:
        Table(**wrong)  # type: ignore[arg-type]
    assert refused.value.fix


def test_a_misspelled_kind_gets_a_suggestion() -> None:
    with pytest.raises(UserError, match="did you mean prioritized"):
        Table(kind="prioritised")  # type: ignore[arg-type]
