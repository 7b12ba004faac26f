"""Starting a run where an earlier one was: what is the new run's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from lifecycle_drivers import Clock, Cluster

from callsheet.backends.kubernetes import diff, launch, names
from callsheet.backends.kubernetes.apply import Change
from callsheet.backends.kubernetes.client.api import Api
from callsheet.backends.kubernetes.record import Outcome
from callsheet.spec.experiment import Experiment

EXPERIMENT = Experiment.model_validate(
    {"metadata": {"name": "exp"}, "spec": {"image": "x", "roles": [{"name": "learner", "command": ["run"]}]}}
)


@pytest.fixture
def cluster() -> Cluster:
    """With a run and its key."""
    made = Cluster(EXPERIMENT, Clock())
    secret = launch._key("exp", "r1")
    made.objects_by_name["Secret", "exp-keys"] = secret
    for each in made.objects_by_name.values():
        each["metadata"].setdefault("labels", {}).update(names.labels("exp", "r1"))
    return made


def end(cluster: Cluster) -> None:
    outcome = Outcome("r1", "Stopped", "stopped", 143, 0.0).to_text()
    cluster.config_map["metadata"]["annotations"][names.OUTCOME] = outcome
    cluster.pods.clear()


def keys(cluster: Cluster, folder: Path) -> list[str]:
    """The keys that starting a run would put into the cluster."""
    prepared = launch.prepare(cast(Api, cluster), EXPERIMENT, folder)
    return [made["data"]["run.key"] for made in prepared.others if made["kind"] == "Secret"]


def test_a_run_that_is_alive_keeps_its_key(cluster: Cluster, tmp_path: Path) -> None:
    assert keys(cluster, tmp_path) == []
    assert launch.make_key(cast(Api, cluster), "exp") is False


def test_the_next_run_has_a_key_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    end(cluster)
    (new,) = keys(cluster, tmp_path)
    old = cluster.objects_by_name["Secret", "exp-keys"]["data"]["run.key"]
    assert new != old
    assert launch.make_key(cast(Api, cluster), "exp") is True
    assert cluster.objects_by_name["Secret", "exp-keys"]["data"]["run.key"] != old


def test_somebody_elses_secret_is_not_touched(cluster: Cluster) -> None:
    end(cluster)
    secret: dict[str, Any] = {"metadata": {"name": "exp-keys"}, "data": {"password": "x"}}
    cluster.objects_by_name["Secret", "exp-keys"] = secret
    assert launch.make_key(cast(Api, cluster), "exp") is False
    assert secret["data"] == {"password": "x"}


def test_a_difference_shows_no_key() -> None:
    before, after = launch._key("exp", "r1"), launch._key("exp", "r2")
    text = "\n".join(diff.lines(Change("change", "Secret", "exp-keys", before, after)))
    assert "r2" in text
    assert before["data"]["run.key"] not in text
    assert after["data"]["run.key"] not in text
