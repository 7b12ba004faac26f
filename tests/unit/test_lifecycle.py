"""The rules of restarts and of a run's end, as tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callsheet.backends.kubernetes.record import Count, Record
from callsheet.lifecycle.restart import (
    STEADY,
    Ended,
    Failed,
    Finished,
    Restart,
    RestartRules,
    Tally,
    after_exit,
    after_sidecar_exit,
    cause,
)
from callsheet.lifecycle.verdict import Failure, RoleCount, RunRules, success_roles, verdict

RULES = RestartRules(limit=2)


@pytest.mark.parametrize(
    ("policy", "code", "after"),
    [
        ("OnFailure", 0, Finished),
        ("OnFailure", 1, Restart),
        ("OnFailure", 78, Failed),
        ("Always", 0, Restart),
        ("Always", 1, Restart),
        ("Always", 78, Restart),
        ("Never", 0, Finished),
        ("Never", 1, Failed),
    ],
)
def test_the_policy_decides_what_an_exit_code_means(policy: Any, code: int, after: type) -> None:
    assert isinstance(after_exit(Ended(code), RestartRules(policy), Tally(), None), after)


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (Ended(1), "program"),
        (Ended(143, requested=True), "requested"),
        (Ended(143, disrupted=True), "disruption"),
        (Ended(143, disrupted=True, requested=True), "disruption"),
    ],
)
def test_the_cause_of_an_end(ended: Ended, why: str) -> None:
    assert cause(ended) == why


@pytest.mark.parametrize("policy", ["OnFailure", "Always", "Never"])
@pytest.mark.parametrize("code", [0, 1, 78])
@pytest.mark.parametrize("field", ["disrupted", "requested"])
def test_only_a_programs_own_end_costs_anything_or_finishes_it(policy: Any, code: int, field: str) -> None:
    ended = Ended(code, **{field: True})  # type: ignore[arg-type]
    again = after_exit(ended, RestartRules(policy, limit=0), Tally(), 0)
    assert isinstance(again, Restart)
    assert (again.delay, again.tally.failures) == (0.0, 0)


def test_disruptions_that_repeat_quickly_are_answered_more_slowly() -> None:
    first = after_exit(Ended(143, disrupted=True), RULES, Tally(), None)
    assert isinstance(first, Restart)
    second = after_exit(Ended(143, disrupted=True), RULES, first.tally, None)
    assert isinstance(second, Restart)
    assert second.delay > first.delay
    steady = after_exit(Ended(143, disrupted=True, lived=STEADY + 1), RULES, second.tally, None)
    assert isinstance(steady, Restart)
    assert steady.delay == 0.0


def test_failures_use_up_the_limit_and_the_budget_and_an_exit_with_0_does_not() -> None:
    always = RestartRules("Always", limit=0)
    done = after_exit(Ended(0), always, Tally(), 0)
    assert isinstance(done, Restart)
    assert done.tally.failures == 0
    assert after_exit(Ended(3), RULES, Tally(failures=2), None) == Failed(
        "exit code 3; it was restarted 2 times, its limit"
    )
    assert after_exit(Ended(3), RULES, Tally(), 0) == Failed(
        "exit code 3; the run's budget of restarts (lifecycle.maxRestarts) is used up"
    )
    again = after_exit(Ended(3), RULES, Tally(failures=1), 1)
    assert isinstance(again, Restart)
    assert (again.tally.failures, again.why) == (2, "exit code 3 (restart 2 of 2)")


def test_delays_double_up_to_a_limit_and_begin_again_after_a_steady_minute() -> None:
    tally, delays = Tally(), []
    for _ in range(9):
        again = after_exit(Ended(1), RestartRules(limit=20), tally, None)
        assert isinstance(again, Restart)
        tally = again.tally
        delays.append(again.delay)
    assert delays == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    steady = after_exit(Ended(1, lived=STEADY + 1), RestartRules(limit=20), tally, None)
    assert isinstance(steady, Restart)
    assert steady.delay == 0.25


@pytest.mark.parametrize("code", [0, 1, 78])
def test_a_container_beside_the_main_one_restarts_whatever_its_code(code: int) -> None:
    again = after_sidecar_exit(Ended(code), Tally(quick=2))
    assert (again.delay, again.tally) == (1.0, Tally(quick=3))


def test_success_is_every_role_that_can_end_unless_named() -> None:
    policies: dict[str, Any] = {"learner": "OnFailure", "server": "Always", "once": "Never"}
    assert success_roles((), policies) == ("learner", "once")
    assert success_roles(["once"], policies) == ("once",)


@pytest.mark.parametrize(
    ("counts", "phase"),
    [
        ({"learner": RoleCount(2, 1)}, None),
        ({"learner": RoleCount(2, 2)}, "Succeeded"),
        ({"learner": RoleCount(0, 0)}, None),
        ({"learner": RoleCount(0, 0), "eval": RoleCount(1, 1)}, "Succeeded"),
        ({"learner": RoleCount(1, 1), "eval": RoleCount(1, 0)}, None),
        ({"learner": RoleCount(1, 1), "actor": RoleCount(1, 0, Failure("actor/0", "x", 3))}, "Failed"),
    ],
)
def test_a_role_without_replicas_has_not_succeeded(counts: dict[str, RoleCount], phase: str | None) -> None:
    said = verdict(RunRules(("learner", "eval")), counts, 0, 0.0)
    assert (said.phase if said else None) == phase


def test_a_failure_is_told_with_its_reason_and_code() -> None:
    said = verdict(RunRules(), {"actor": RoleCount(1, 0, Failure("actor/0", "exit code 3", 3))}, 0, 0.0)
    assert said is not None
    assert (said.reason, said.code) == ("actor/0 failed: exit code 3", 3)


def test_the_deadline_counts_active_seconds_alone() -> None:
    rules = RunRules(("learner",), deadline=60.0)
    record = Record("r1").at(1030.0, suspended=True)
    assert record.active(1000.0, 5000.0) == 30.0
    record = record.at(5000.0, suspended=False)
    assert verdict(rules, {}, 0, record.active(1000.0, 5029.0)) is None
    late = verdict(rules, {}, 0, record.active(1000.0, 5030.0))
    assert late is not None
    assert (late.phase, late.code, late.reason) == ("Failed", 124, "the deadline of 60 s has passed")


def test_restarts_that_nobody_saw_happen_are_noticed_by_their_number() -> None:
    said = verdict(RunRules(max_restarts=3), {}, 4, 0.0)
    assert said is not None
    assert said.reason == "the run's budget of 3 restarts (lifecycle.maxRestarts) is used up"
    assert verdict(RunRules(max_restarts=3), {}, 3, 0.0) is None


def test_a_record_of_very_many_replicas_still_fits_into_an_annotation() -> None:
    counts = {f"actor/{n}": Count(f"{n:036}", ends=3, failures=2) for n in range(10_000)}
    counts["actor/7"] = Count("x", ends=3, failures=2, failed="exit code 3", code=3)
    record = Record("r1", started=True, left=4, replicas=counts, forgotten=["x" * 36] * 1000)
    text = record.to_text()
    assert len(text) < 200_000
    kept = Record.from_data(json.loads(text))
    assert (kept.started, kept.left, list(kept.replicas)) == (True, 4, ["actor/7"])
    small = Record("r1", replicas={"actor/0": Count("x", ends=1)})
    assert Record.from_data(json.loads(small.to_text())) == small
