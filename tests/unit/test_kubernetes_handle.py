"""A handle on a run in a cluster: what it keeps and gives back when the pods are gone, and how it stops a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from test_kubernetes_status import observed, pod

from callsheet.backends.base import LogQuery, Status, Target
from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.client.errors import ApiError
from callsheet.backends.kubernetes.local_copy import LocalCopy
from callsheet.backends.kubernetes.observe.status import Assessment
from callsheet.backends.kubernetes.run import KubernetesRun
from callsheet.backends.log_chunks import LogChunk
from callsheet.errors import RetryError


@pytest.fixture
def kept(tmp_path: Path) -> LocalCopy:
    made = LocalCopy(tmp_path)
    made.start("kind: Experiment\n")
    for index, container in ((10, "actor"), (9, "actor"), (0, "policy"), (0, "sim")):
        role = "actor" if container == "actor" else "simulation"
        made.append(LogChunk(role, index, container, f"{container} {index}\nbye\n"))
    return made


def lines(kept: LocalCopy, query: LogQuery, but: tuple[tuple[str, int], ...] = ()) -> list[str]:
    return [line.text for chunk in kept.chunks(query, but) for line in chunk.lines()]


def test_all_that_was_kept_comes_by_role_index_and_container(kept: LocalCopy) -> None:
    assert lines(kept, LogQuery())[::2] == ["actor 9", "actor 10", "policy 0", "sim 0"]


def test_what_a_pod_still_has_is_not_told_twice(kept: LocalCopy) -> None:
    assert lines(kept, LogQuery(tail=1, targets=[Target("actor")]), but=(("actor", 9),)) == ["bye"]


@pytest.mark.parametrize(
    "query",
    [
        LogQuery(container="sim"),
        LogQuery(targets=[Target("simulation", 0, "sim")]),
        LogQuery(targets=[Target("simulation", 0)], container="sim"),
        LogQuery(targets=[Target("simulation"), Target("actor")], container="sim"),
    ],
)
def test_only_the_container_that_is_asked_for(kept: LocalCopy, query: LogQuery) -> None:
    assert lines(kept, query) == ["sim 0", "bye"]


def test_waiting_for_the_end_writes_down_how_it_ended(
    kept: LocalCopy, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = KubernetesRun(cast(Api, None), "exp", "r1", attached=True)
    run.local_copy = kept
    over = Status(experiment="exp", run="r1", phase="Succeeded", backend="kubernetes", exit_code=0)
    monkeypatch.setattr(run, "_assess", lambda: Assessment(over, None))
    assert run.wait().phase == "Succeeded"
    assert json.loads((kept.folder / "status.json").read_text())["phase"] == "Succeeded"


class Busy:
    """An API server on which others change the run's ConfigMap so many times before our change comes."""

    def __init__(self, conflicts: int) -> None:
        self.conflicts = conflicts
        self.patched: list[str] = []

    def patch(self, kind: str, name: str, body: Any) -> None:
        if kind == "ConfigMap" and self.conflicts:
            self.conflicts -= 1
            raise ApiError(409, "the object has been modified", "the cluster refused")
        self.patched.append(kind)


def stopping(conflicts: int, monkeypatch: pytest.MonkeyPatch) -> Busy:
    busy = Busy(conflicts)
    seen = observed(pod("learner"), pod("actor"))
    seen.config_map["metadata"]["resourceVersion"] = "1"
    for workload in seen.workloads.values():
        workload["metadata"]["name"] = "exp"
    run = KubernetesRun(cast(Api, busy), "exp", "r1")
    monkeypatch.setattr(run, "_observe", lambda **_: seen)
    run.stop()
    return busy


def test_a_stop_is_not_lost_when_somebody_scales_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stopping(3, monkeypatch).patched == ["ConfigMap", "Job", "Job"]


def test_a_stop_that_others_always_forestall_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RetryError, match="others keep changing the run r1"):
        stopping(1000, monkeypatch)
