"""Metrics are made once, cheap to update, exact under threads, and refused when they would hurt."""

from __future__ import annotations

import contextlib
import dis
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator

import numpy
import pytest

from callsheet.errors import UserError
from callsheet.metrics import COUNTS, SECONDS, Counter, Gauge, Histogram, Registry, exponential, instruments
from callsheet.metrics.instruments import Distribution, LockedCounter, LockedGauge, LockedHistogram

THREADS, UPDATES = 8, 20_000


@pytest.fixture
def impatient() -> Iterator[None]:
    """Threads take turns as often as the interpreter lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def all_at_once(work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("counter", "gauge", "histogram"),
    [(Counter, Gauge, Histogram), (LockedCounter, LockedGauge, LockedHistogram)],
    ids=["with a GIL", "without one"],
)
def test_no_update_is_lost_between_threads(counter, gauge, histogram) -> None:
    steps, level, spread = counter(), gauge(), histogram(COUNTS)

    def work() -> None:
        for number in range(UPDATES):
            steps.add(2)
            level.add(1 if number % 2 else -1)
            spread.observe(number % 4)

    all_at_once(work)
    assert steps.value == 2 * THREADS * UPDATES
    assert level.value == 0
    assert spread.value.count == THREADS * UPDATES
    assert spread.value.total == THREADS * UPDATES * 1.5


@pytest.mark.usefixtures("impatient")
def test_the_test_above_would_notice_a_counter_that_lets_others_in() -> None:
    class Careless(Counter):
        def add(self, amount: float = 1) -> None:
            before = self._value
            if not met.broken:
                # After a call another thread may run: here each of them does, once.
                with contextlib.suppress(threading.BrokenBarrierError):
                    met.wait()
                met.abort()
            self._value = before + amount

    met = threading.Barrier(THREADS)
    steps = Careless()
    all_at_once(lambda: [steps.add() for _ in range(UPDATES)] and None)
    assert steps.value < THREADS * UPDATES


@pytest.mark.parametrize("update", [Counter.add, Gauge.set, Gauge.add, Histogram.observe])
def test_the_interpreter_changes_threads_in_no_update(update: Callable[..., None]) -> None:
    """It does so at a function's start, at a jump backwards and after a call: none stands between reading and writing."""
    names = [step.opname for step in dis.get_instructions(update)]
    calls = [place for place, name in enumerate(names) if "CALL" in name]
    straight = names[calls[-1] + 1 if calls else names.index("RESUME") + 1 :]
    assert not [n for n in straight if n == "RESUME" or n.startswith(("JUMP_BACKWARD", "YIELD", "SEND"))]
    writes = [name for name in names if name.startswith(("STORE_ATTR", "STORE_SUBSCR"))]
    assert [name for name in straight if name.startswith(("STORE_ATTR", "STORE_SUBSCR"))] == writes


def test_a_histogram_counts_buckets_and_estimates_quantiles() -> None:
    lag = Registry().histogram("lag", "Versions behind.", buckets=(0, 1, 2, 4))
    for value, times in ((0, 50), (1, 30), (3, 10), (9, 10)):
        lag.observe(value, times)
    assert lag.value.counts == (50, 30, 0, 10, 10)
    assert lag.value.total == 150
    assert lag.quantile(0.5) == 0
    assert lag.quantile(0.8) == 1
    assert lag.quantile(0.85) == 3
    assert lag.quantile(0.99) == 4, "beyond the last bound nothing is known but the bound"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_quantile_of_times_is_right_to_within_its_bucket(share: float) -> None:
    wait = Registry().histogram("wait", "Waiting.", unit="seconds")
    values = [1e-4 * 1.003**n for n in range(3000)]
    for value in values:
        wait.observe(value)
    exact = values[int(share * len(values))]
    assert exact / 2 <= wait.quantile(share) <= exact * 2


def test_an_empty_histogram_has_no_quantile() -> None:
    assert Histogram(SECONDS).quantile(0.5) == 0.0
    difference = Distribution((1.0,), (3, 1), 5.0).since(Distribution((1.0,), (1, 1), 3.0))
    assert (difference.counts, difference.total, difference.count) == ((2, 0), 2.0, 2)


def test_asking_again_for_the_same_metric_gives_the_same_one() -> None:
    registry = Registry()
    first = registry.counter("steps", "Environment steps.")
    assert registry.counter("steps", "Environment steps.") is first
    with pytest.raises(UserError, match="'steps' already exists with another meaning: Environment steps"):
        registry.gauge("steps", "Something else.")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Steps", "not a valid metric or label name"),
        ("queue-depth", "not a valid metric"),
        ("steps__done", "not a valid metric"),
        ("steps_total", "ends with _total, which Prometheus adds itself"),
        ("wait_count", "ends with _count"),
        ("", "not a valid metric"),
    ],
)
def test_a_bad_name_is_refused(name: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        Registry().counter(name, "Help.")


def test_what_makes_no_sense_is_refused() -> None:
    registry = Registry()
    with pytest.raises(UserError, match="no help text"):
        registry.counter("steps", " ")
    with pytest.raises(UserError, match="not ascending numbers"):
        registry.histogram("size", "Sizes.", buckets=(1, 1))
    with pytest.raises(UserError, match="not ascending numbers"):
        registry.histogram("size", "Sizes.", buckets=(1, math.inf))
    with pytest.raises(UserError, match="not 'le'"):
        registry.counters("size", "Sizes.", ("le",))
    with pytest.raises(UserError, match="makes no buckets"):
        exponential(0, 2, 3)


def test_the_unit_ends_the_name() -> None:
    registry = Registry()
    registry.counter("wait", "Waiting.", unit="seconds")
    registry.gauge("resident_bytes", "Memory.", unit="bytes")
    registry.counter("callsheet_steps", "Steps.")
    assert [d.full_name for d in registry.definitions()] == [
        "callsheet_wait_seconds",
        "callsheet_resident_bytes",
        "callsheet_steps",
    ]


def test_labels_tell_instruments_apart() -> None:
    refusals = Registry().counters("refusals", "Refused peers.", ("reason",))
    refusals.of(reason="key").add()
    refusals.of(reason="schema").add(2)
    assert refusals.of(reason="key") is refusals.of(reason="key")
    assert {labels: member.value for labels, member in refusals.read()} == {("key",): 1, ("schema",): 2}
    with pytest.raises(UserError, match="requested with the labels none"):
        refusals.of()
    with pytest.raises(UserError, match="use exactly these: reason"):
        refusals.of(reason="key", peer="x")


def test_labels_are_few_and_short() -> None:
    peers = Registry().counters("sent", "By peer.", ("peer",), limit=3)
    for number in range(3):
        peers.of(peer=str(number)).add(number)
    with pytest.raises(
        UserError, match=r"'sent' already has 3 label combinations, its limit; peer='3'"
    ) as error:
        peers.of(peer="3")
    assert "never for ids, addresses or steps" in error.value.fix
    assert peers.of(peer="2").value == 2, "those that were there before still count"
    assert [labels for labels, _ in peers.read()] == [("0",), ("1",), ("2",)]
    names = Registry().counters("sent", "By peer.", ("peer",))
    with pytest.raises(UserError, match="longer than 100 characters"):
        names.of(peer="x" * 101)
    names.of(peer="x" * 100).add()
    assert [labels for labels, _ in names.read()] == [("x" * 100,)]


def test_a_followed_function_is_asked_when_somebody_looks() -> None:
    registry = Registry()
    waiting: list[int] = []
    depth = registry.gauge("queue", "Waiting items.")
    depth.follow(lambda: len(waiting))
    waiting += [1, 2]
    assert [reading.value for reading in registry.snapshot()] == [2]
    depth.follow(None)
    depth.set(9)
    assert depth.value == 9


def test_a_function_that_fails_costs_its_own_metric_alone() -> None:
    registry = Registry()
    registry.gauge("broken", "Fails.").follow(lambda: 1 // 0)
    registry.counter("steps", "Steps.").add(3)
    assert [(r.definition.name, r.value) for r in registry.snapshot()] == [("steps", 3)]
    assert registry.failures.value == 1


@pytest.mark.parametrize("locked", [False, True])
def test_a_forked_child_counts_for_itself(locked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruments, "LOCKED", locked)
    registry = Registry()
    steps = registry.counter("steps", "Steps.")
    spread = registry.histogram("lag", "Lag.")
    steps.add(100)
    spread.observe(1)
    with registry._lock:  # as if another thread were just making a metric
        child = os.fork()
        if not child:
            fresh = steps.value == 0 and spread.value.count == 0
            steps.add(7)
            registry.counter("more", "Made in the child: no lock is left held.").add()
            os._exit(0 if fresh and steps.value == 7 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert steps.value == 100
    assert spread.value.count == 1


def test_numbers_of_numpy_become_plain_numbers() -> None:
    registry = Registry()
    registry.gauge("loss", "Loss.").set(numpy.float32(0.5))
    registry.counter("steps", "Steps.").add(numpy.int64(3))
    registry.histogram("lag", "Lag.").observe(numpy.int32(2))
    loss, steps, lag = [reading.value for reading in registry.snapshot()]
    assert (type(loss), loss, type(steps), steps) == (float, 0.5, float, 3)
    assert isinstance(lag, Distribution)
    assert type(lag.total) is float
