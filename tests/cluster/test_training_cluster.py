"""A training on a real cluster: a learner and two actors in pods, checkpoints on an S3 server."""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster_runs import callsheet, folder
from kubectl import Kube, eventually

from tools.cluster import images, network, units
from tools.cluster import registry as where

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from s3_server import BUCKET, S3Server, serving

from callsheet import contract
from callsheet.store import NotFound, Store, open_store

__all__ = ["folder"]


@pytest.fixture
def s3(cluster: Kube, tmp_path: Path) -> Iterator[S3Server]:
    """A server beside the control plane, where pods and this machine can reach it."""
    own = cluster.own
    if own is None:
        pytest.skip("this test starts a server inside the cluster's network")
    pid = units.first_process(own, "control")
    assert pid is not None
    with serving(tmp_path / "s3", own.address(1), network.inside(pid)) as server:
        yield server


@pytest.fixture
def registry(cluster: Kube, s3: S3Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where `callsheet train` finds our images. The learner's is the slim one here too, under its name."""
    assert cluster.own is not None
    built = images.project_image()
    place = built.partition(":")[2]  # of these sources and no others
    for name in (contract.IMAGE, contract.LEARNER_IMAGE):
        images.push(cluster.own, built, f"{place}/{name}:{version('callsheet')}")
    monkeypatch.setenv("CALLSHEET_REGISTRY", where.reference(place))
    return where.reference(place)


def with_torch(spec: dict[str, Any]) -> None:
    """PyTorch is large: the learner gets it from its node's disk, read-only, instead of from an image."""
    spec["volumes"] = [{"name": "torch", "hostPath": {"path": sysconfig.get_path("purelib")}}]
    role = spec["roles"][0]
    role["volumeMounts"] = [{"name": "torch", "mountPath": "/torch", "readOnly": True}]
    role["env"].append({"name": "PYTHONPATH", "value": "/torch"})


def experiment(namespace: Kube, s3: S3Server, *options: str) -> dict[str, Any]:
    """What `callsheet train` would run, with what this cluster needs."""
    done = callsheet(
        namespace,
        *("train", "impala", "--env", "CartPole-v1", "--actors", "2", "--seed", "1"),
        *("--storage", f"s3://{BUCKET}/{namespace.namespace}", "--stop-sampled", "475"),
        *("--checkpoint-every", "1", "--render", *options),
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    spec = found["spec"]
    spec["env"] = [{"name": name, "value": value} for name, value in s3.environment().items()]
    with_torch(spec)
    for role in spec["roles"]:
        role["terminationGracePeriod"] = "10s"
    return found


def pod(namespace: Kube, role: str) -> dict[str, Any]:
    found: dict[str, Any] = namespace.get("pods", "-l", f"callsheet.dev/role={role}")["items"][0]
    return found


def image(found: dict[str, Any]) -> str:
    return str(found["spec"]["containers"][0]["image"])


def checkpoints(results: Store) -> int:
    return sum(1 for entry in results.list() if "/checkpoints/manifests/" in entry.key)


def test_a_training_whose_learner_is_deleted_half_way_gets_there_from_its_checkpoint(
    namespace: Kube, folder: Path, registry: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    # Slower than by default, so that there is a half way.
    wanted = experiment(namespace, s3, "--set", "learning_rate=0.001")
    (folder / "training.yaml").write_text(yaml.safe_dump(wanted))
    started = callsheet(namespace, "run", "-f", "training.yaml", "-d")
    assert started.returncode == 0, started.stderr
    results = open_store(f"s3://{BUCKET}/{namespace.namespace}")

    eventually(lambda: checkpoints(results) >= 2, seconds=300)  # a claim, and one that was written
    learner = pod(namespace, "learner")
    namespace("delete", "pod", learner["metadata"]["name"], "--wait=false")
    slim, large = (f"{registry}/{name}:{version('callsheet')}" for name in ("callsheet", "callsheet-learner"))
    assert image(pod(namespace, "actor")) == image(pod(namespace, "evaluator")) == slim
    assert image(learner) == large

    def result() -> dict[str, Any]:
        keys = [entry.key for entry in results.list() if entry.key.endswith("/result.json")]
        try:
            return json.loads(results.get(keys[0])) if keys else {}
        except NotFound:
            return {}

    eventually(lambda: bool(result()), seconds=600)
    told = result()
    assert told["return"] >= 475
    assert told["ended"].startswith("the last 20 sampled episodes")
    assert told["resumed_from"].startswith("step-"), "it went on from a checkpoint"
    log = callsheet(namespace, "logs", "impala-cartpole-v1", "learner")
    assert f"resumed from {told['resumed_from']}" in log.stdout
    done = callsheet(namespace, "attach", "impala-cartpole-v1")
    assert done.returncode == 0, done.stdout + done.stderr
