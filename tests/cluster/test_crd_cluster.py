"""The custom resource on a real API server: it takes what `validate` takes, and refuses what it refuses."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import strategies
import yaml
from hypothesis import HealthCheck, given, settings
from kubectl import Kube, eventually

from callsheet.compat.dijob import convert
from callsheet.errors import InvalidExperiment
from callsheet.plan.load import load
from callsheet.spec.crd import crd
from callsheet.spec.dump import to_data
from callsheet.spec.schema import reference

ROOT = Path(__file__).parents[2]
FILES = [*ROOT.glob("examples/*/experiment.yaml"), ROOT / "src/callsheet/cli/starter/experiment.yaml"]

Data = dict[str, Any]

BASE: Data = {
    "apiVersion": "callsheet.dev/v1alpha1",
    "kind": "Experiment",
    "metadata": {"name": "good"},
    "spec": {
        "files": {"config.py": "x = 1"},
        "volumes": [{"name": "data", "emptyDir": {}}],
        "roles": [
            {
                "name": "learner",
                "command": ["learn"],
                "binds": [{"name": "replay", "port": 9000}],
                "exposes": [{"name": "board", "port": 6006}],
                "env": [{"name": "A", "value": "1"}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "resources": {"requests": {"cpu": 1}, "limits": {"cpu": "1500m", "nvidia.com/gpu": 1}},
                "readinessProbe": {"tcpSocket": {"port": "replay"}},
            },
            {
                "name": "simulation",
                "replicas": 2,
                "scale": {"min": 1, "max": 3},
                "labels": {"example.com/team": "rl"},
                "containers": [
                    {"name": "policy", "binds": [{"name": "policy", "port": 9001}], "connects": ["replay"]},
                    {"name": "sim", "connects": ["policy"], "binds": [{"name": "sim"}]},
                ],
            },
        ],
        "lifecycle": {"success": ["learner"]},
    },
}
LEARNER = ("spec", "roles", 0)
GROUP = ("spec", "roles", 1)
SIM = (*GROUP, "containers", 1)
LONG = "x" * 60

MISTAKES: list[tuple[tuple[str | int, ...], Any, str]] = [
    (("metadata", "name"), "Bad_name", "Invalid value"),
    (("metadata", "name"), "e" * 50, "<experiment>-<role>"),
    ((*LEARNER, "exposes", 0, "name"), LONG, "<experiment>-<endpoint>"),
    ((*SIM, "binds", 0, "name"), LONG, "<experiment>-<endpoint>"),
    ((*GROUP, "name"), "learner", "Duplicate value"),
    ((*SIM, "name"), "policy", "Duplicate value"),
    ((*LEARNER, "env"), [{"name": "A", "value": ""}, {"name": "A", "value": ""}], "Duplicate value"),
    ((*GROUP, "scale", "min"), 4, "min is greater than max"),
    ((*GROUP, "replicas"), 9, "replicas is outside scale"),
    ((*SIM, "connects"), ["nobody"], "no role binds"),
    ((*LEARNER, "connects"), ["nobody"], "no role binds"),
    ((*SIM, "binds", 0, "name"), "replay", "bound twice"),
    ((*LEARNER, "exposes", 0, "name"), "replay", "bound twice"),
    ((*SIM, "binds", 0, "name"), "policy", "bound twice"),
    ((*LEARNER, "exposes", 0, "name"), "files", "reserved for placeholders"),
    ((*LEARNER, "exposes", 0, "port"), 9000, "used by another endpoint"),
    ((*SIM, "binds", 0, "port"), 9001, "used by another endpoint"),
    ((*LEARNER, "exposes", 0, "port"), 70000, "65535"),
    ((*GROUP, "command"), ["x"], "command cannot be set next to containers"),
    ((*GROUP, "image"), "x", "image cannot be set next to containers"),
    (("spec", "lifecycle", "success"), ["learnr"], "names a role that does not exist"),
    ((*LEARNER, "restart"), {"policy": "Always"}, "never ends"),
    (("spec", "volumes", 0, "hostPath"), {"path": "/x"}, "exactly one of emptyDir"),
    (("spec", "volumes", 0), {"name": "data"}, "exactly one of emptyDir"),
    (("spec", "volumes", 0), {"name": "data", "hostPath": {"path": "x"}}, "should match"),
    (("spec", "volumes", 0), {"name": "data", "secret": {"secretName": "No"}}, "should match"),
    ((*LEARNER, "volumeMounts", 0, "name"), "dat", "not in spec.volumes"),
    ((*SIM, "volumeMounts"), [{"name": "dat", "mountPath": "/x"}], "not in spec.volumes"),
    ((*LEARNER, "volumeMounts", 0, "mountPath"), "data", "should match"),
    ((*LEARNER, "volumeMounts", 0, "subPath"), "a/../..", "points outside the volume"),
    (
        (*LEARNER, "env", 0, "valueFrom"),
        {"fieldRef": {"fieldPath": "metadata.name"}},
        "either value or valueFrom",
    ),
    ((*LEARNER, "env", 0), {"name": "A"}, "either value or valueFrom"),
    ((*LEARNER, "env", 0), {"name": "A", "valueFrom": {}}, "exactly one of secretKeyRef"),
    ((*LEARNER, "env", 0, "name"), "CALLSHEET_INDEX", "are reserved"),
    ((*LEARNER, "env", 0, "name"), "1", "should match"),
    ((*SIM, "envFrom"), [{"prefix": "X_"}], "exactly one of configMapRef"),
    ((*LEARNER, "readinessProbe", "exec"), {"command": ["true"]}, "exactly one of exec"),
    ((*LEARNER, "readinessProbe", "tcpSocket", "port"), "repla", "is not an endpoint"),
    ((*LEARNER, "readinessProbe", "tcpSocket", "port"), 0, "from 1 to 65535"),
    ((*LEARNER, "resources", "requests", "cpu"), 2, "exceeds its limit"),
    ((*LEARNER, "resources", "limits", "nvidia.com/gpu"), "500m", "GPUs come in whole numbers"),
    ((*LEARNER, "resources", "limits", "memory"), "10Gb", "should match"),
    ((*GROUP, "labels"), {"a b": "x"}, "not a valid Kubernetes key"),
    ((*GROUP, "nodeSelector"), {"a": "x y"}, "should match"),
    (("spec", "files"), {"a/b": ""}, "no folders"),
    (("spec", "storage"), "/results", "should match"),
    (("spec", "lifecycle", "deadline"), "soon", "should match"),
    (("spec", "lifecycle", "cleanPods"), "Some", "Unsupported value"),
    (("spec", "roles"), [], "at least 1 items"),
    (("spec", "rolez"), [], 'unknown field "spec.rolez"'),
]


def changed(path: tuple[str | int, ...], value: Any) -> Data:
    made = copy.deepcopy(BASE)
    node: Any = made
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return made


@pytest.fixture(scope="module")
def kube(cluster: Kube) -> Kube:
    """The cluster, once it knows the kind Experiment."""
    cluster("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(crd()))
    # `kubectl wait` fails while there is no condition at all.
    eventually(lambda: "Established" in _conditions(cluster))
    eventually(
        lambda: "experiments" in cluster("api-resources", "--api-group=callsheet.dev", "--cached=false")
    )
    return cluster


def _conditions(cluster: Kube) -> list[str]:
    status = json.loads(cluster("get", "crd/experiments.callsheet.dev", "-o", "json")).get("status") or {}
    return [one["type"] for one in status.get("conditions") or [] if one["status"] == "True"]


def try_out(kube: Kube, *experiments: Data) -> str:
    items = {"apiVersion": "v1", "kind": "List", "items": list(experiments)}
    return kube("create", "--dry-run=server", "-f", "-", stdin=json.dumps(items))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_every_example_is_taken(kube: Kube, file: Path) -> None:
    assert "(server dry run)" in kube("apply", "--dry-run=server", "-f", str(file))


def test_a_converted_job_is_taken(kube: Kube) -> None:
    job = ROOT / "examples" / "dijob" / "job.yaml"
    [made] = convert(job.read_bytes(), str(job))
    assert "corridor created" in try_out(kube, to_data(made.experiment))


def test_whatever_validate_takes_is_taken(kube: Kube) -> None:
    made: list[Data] = []

    @settings(max_examples=60, database=None, suppress_health_check=list(HealthCheck))
    @given(strategies.experiments())
    def collect(experiment: Any) -> None:
        data = to_data(experiment)
        data["metadata"].pop("namespace", None)
        made.append(data)

    collect()
    assert try_out(kube, *made).count("created") == len(made)


@pytest.mark.parametrize(("path", "value", "said"), MISTAKES, ids=lambda part: str(part)[:40])
def test_what_validate_refuses_is_refused(
    kube: Kube, tmp_path: Path, path: tuple[str | int, ...], value: Any, said: str
) -> None:
    wrong = changed(path, value)
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(wrong))

    with pytest.raises(InvalidExperiment):
        load([str(file)])
    assert said in kube.refused("create", "--dry-run=server", "-f", str(file))


def test_what_is_right_is_taken_and_comes_back_as_the_same_experiment(
    namespace: Kube, kube: Kube, tmp_path: Path
) -> None:
    namespace("apply", "-f", "-", stdin=json.dumps(BASE))
    stored = tmp_path / "stored.yaml"
    stored.write_text(namespace("get", "exp", "good", "-o", "yaml"))
    given = tmp_path / "given.yaml"
    given.write_text(yaml.safe_dump(BASE))

    [back], [sent] = load([str(stored)]), load([str(given)])

    assert back.experiment.spec == sent.experiment.spec


def test_a_status_is_shown_in_columns_and_only_written_as_such(namespace: Kube, kube: Kube) -> None:
    status = {"phase": "Running", "ready": "3/4", "steps": 2_000_000, "return": 187.5}
    namespace("apply", "-f", "-", stdin=json.dumps(BASE | {"status": {"phase": "Failed"}}))
    assert "Failed" not in namespace("get", "exp")

    namespace(
        "patch", "exp", "good", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status})
    )

    header, row = namespace("get", "exp").splitlines()
    assert header.split() == ["NAME", "PHASE", "READY", "STEPS", "RETURN", "AGE"]
    assert row.split()[:5] == ["good", "Running", "3/4", "2000000", "187.5"]
    wrong = json.dumps({"status": {"phase": "Runing"}})
    refusal = namespace.refused("patch", "exp", "good", "--subresource=status", "--type=merge", "-p", wrong)
    assert "Unsupported value" in refusal


def test_explain_reads_like_the_reference_page(kube: Kube) -> None:
    explained = " ".join(kube("explain", "exp.spec.roles").split())
    page = reference()
    for line in page.partition("\n## Role\n")[2].partition("\n## ")[0].splitlines():
        if line.startswith("| `"):
            key, meaning = line.split("|")[1].strip(" `"), line.split("|")[-2].strip()
            assert f" {key} <" in explained
            assert meaning in explained
