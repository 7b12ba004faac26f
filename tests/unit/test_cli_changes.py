"""Messages about what changed between two statuses of a run."""

from __future__ import annotations

from dataclasses import replace

from fake_backend import replica, status

from callsheet.backends.status import ContainerStatus, ReplicaStatus
from callsheet.cli.follow.changes import describe_changes
from callsheet.cli.follow.log_lines import RateLimiter


def texts(before, after) -> list[str]:
    return [message.text for message in describe_changes(before, after)]


def test_the_first_moment_tells_who_started() -> None:
    now = status("r", "Starting", replica("learner", 0), replica("actor", 0, ready=False))
    assert texts(None, now) == ["starting", "learner/0 started and ready", "actor/0 started"]


def test_equal_news_of_many_replicas_become_one_sentence() -> None:
    before = status("r", "Running", *(replica("actor", i, ready=False) for i in range(200)))
    after = status("r", "Running", *(replica("actor", i, ready=i != 7) for i in range(200)))
    assert texts(before, after) == ["actor: 199 replicas ready"]


def test_a_failure_a_restart_and_an_end_are_told() -> None:
    before = status("r", "Running", replica("actor", 0), replica("actor", 1), replica("learner", 0))
    after = status(
        "r",
        "Running",
        replica("actor", 0, "Failed", reason="exit code 3", attempt=10),
        replica("actor", 1, ready=False, attempt=1, restarts=1),
        replica("learner", 0, "Succeeded"),
    )
    assert texts(before, after) == [
        "actor/0 failed: exit code 3",
        "actor/1 restarted (attempt 1)",
        "learner/0 finished",
    ]


def test_scaling_and_warnings_are_told_once() -> None:
    before = status("r", "Running", replica("actor", 0))
    after = status("r", "Running", replica("actor", 0), replica("actor", 1), warnings=["disk is full"])
    assert texts(before, after) == [
        "warning: disk is full",
        "actor scaled from 1 to 2",
        "actor/1 started and ready",
    ]
    assert texts(after, replace(after, uptime=90.0)) == []


def test_a_warning_whose_amount_grows_is_told_once() -> None:
    moments = [
        status("r", "Running", warnings=[f"a/{i}: {n:,} bytes dropped"])
        for i, n in ((0, 5), (0, 7000), (1, 5))
    ]
    assert texts(moments[0], moments[1]) == []
    assert texts(moments[1], moments[2]) == ["warning: a/1: 5 bytes dropped"]


def test_a_replica_that_is_no_longer_ready_says_why() -> None:
    before = status("r", "Running", replica("actor", 0))
    after = status("r", "Running", replica("actor", 0, ready=False, reason="probe failed"))
    assert texts(before, after) == ["actor/0 is no longer ready: probe failed"]


def test_a_container_that_ends_beside_the_main_one_is_named_with_its_end() -> None:
    def group(restarts: int, code: int | None, *, ready: bool) -> ReplicaStatus:
        sim = ContainerStatus(name="sim", restarts=restarts, exit_code=code, ready=ready)
        containers = [ContainerStatus(name="policy", ready=True), sim]
        return replica("a", 0, "Running", ready=ready, restarts=restarts, containers=containers)

    whole, ended = status("r", "Running", group(0, None, ready=True)), group(1, -9, ready=False)
    ended.phase = "Starting"
    assert texts(whole, status("r", "Running", ended)) == [
        "a/0/sim ended by signal 9, to be restarted (restart 1)"
    ]
    assert texts(status("r", "Running", ended), status("r", "Running", group(1, None, ready=True))) == [
        "a/0 ready"
    ]
    assert texts(whole, status("r", "Running", group(1, None, ready=True))) == [
        "a/0/sim ended, to be restarted (restart 1)"
    ]


def test_a_flood_is_limited_per_container_and_counted() -> None:
    now = [100.0]
    limiter = RateLimiter(rate=10, clock=lambda: now[0])
    assert sum(limiter.allows("actor/0") for _ in range(25)) == 10
    assert limiter.allows("learner/0")
    now[0] += 1
    assert limiter.allows("actor/0")
    assert limiter.take_skipped() == {"actor/0": 15}
    assert limiter.take_skipped() == {}
