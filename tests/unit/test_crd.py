"""The custom resource is made from the models: complete, bounded, described, and small enough for kubectl."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from callsheet.cli.main import call
from callsheet.spec.crd import PHASES, crd
from callsheet.spec.crd_rules import MOST, MOST_KEYS
from callsheet.spec.experiment import ContainerFields
from callsheet.spec.schema import keys, schema

Node = dict[str, Any]


def version() -> Node:
    found: Node = crd()["spec"]["versions"][0]
    return found


@cache
def root() -> Node:
    found: Node = version()["schema"]["openAPIV3Schema"]
    return found


def nodes(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    yield path, node
    for key, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from nodes(node[key], f"{path}[]")


def at(path: str) -> Node:
    return dict(nodes(root()))[path]


def test_it_is_the_kind_experiment_with_a_status_of_its_own() -> None:
    made = crd()
    assert made["metadata"]["name"] == "experiments.callsheet.dev"
    assert made["spec"]["names"]["shortNames"] == ["exp"]
    assert made["spec"]["scope"] == "Namespaced"
    assert version()["name"] == "v1alpha1"
    assert version()["subresources"] == {"status": {}}


def test_kubectl_get_shows_phase_ready_steps_return_and_age() -> None:
    columns = version()["additionalPrinterColumns"]
    assert [column["name"] for column in columns] == ["Phase", "Ready", "Steps", "Return", "Age"]
    status = root()["properties"]["status"]["properties"]
    assert all(c["jsonPath"].removeprefix(".status.") in status for c in columns[:4])


def test_every_key_of_the_models_is_in_it_and_described() -> None:
    wanted = {path for path, _ in nodes(schema()["properties"]["spec"], ".spec")}
    found = dict(nodes(root()))
    assert wanted <= found.keys()
    for path, node in found.items():
        for key, inner in node.get("properties", {}).items():
            assert inner.get("description") or path in ("", ".metadata"), f"{path}.{key}"


def test_only_defaults_that_say_something_are_filled_in() -> None:
    defaults = {path: node["default"] for path, node in nodes(root()) if "default" in node}
    assert defaults[".spec.roles[].replicas"] == 1
    assert defaults[".spec.roles[].restart"] == {"policy": "OnFailure", "limit": 10}
    assert defaults[".spec.lifecycle"] == {"cleanPods": "Running"}
    assert ".spec.roles[].command" not in defaults
    assert not [path for path, value in defaults.items() if value in (None, "", False) or value in ([], {})]


def test_things_with_a_name_are_unique_by_it() -> None:
    for path in (
        ".spec.roles",
        ".spec.volumes",
        ".spec.env",
        ".spec.roles[].containers",
        ".spec.roles[].binds",
    ):
        assert at(path)["x-kubernetes-list-map-keys"] == ["name"], path
    assert at(".spec.roles[].containers[].volumeMounts")["x-kubernetes-list-map-keys"] == ["mountPath"]


def test_every_list_that_a_rule_reads_has_a_largest_size() -> None:
    for name in ("roles", "roles[].containers", "roles[].binds", "roles[].containers[].connects", "volumes"):
        assert at(f".spec.{name}")["maxItems"] > 0


def test_every_field_of_a_container_has_a_rule_against_standing_beside_containers() -> None:
    rules = at(".spec.roles[]")["x-kubernetes-validations"]
    placed = {rule.get("fieldPath") for rule in rules if "next to containers" in rule["message"]}
    assert placed == {f".{key}" for key in keys(ContainerFields)}


def test_every_rule_has_a_message_for_people() -> None:
    rules = [rule for _, node in nodes(root()) for rule in node.get("x-kubernetes-validations", [])]
    assert len(rules) > 40
    assert all(rule["message"] for rule in rules)


def test_the_page_tells_the_largest_sizes() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "custom-resource.md").read_text()
    told = {
        name: int(row.split("|")[2])
        for row in page.partition("## Size limits")[2].partition("\n## ")[0].splitlines()
        for name in re.findall(r"`(\w+)`", row)
    }
    assert told.items() >= MOST.items()
    assert {told[key] for key in ("labels", "annotations", "nodeSelector", "files")} == {MOST_KEYS}


def test_the_status_knows_every_phase() -> None:
    assert at(".status.phase")["enum"] == list(PHASES)
    assert "Succeeded" in PHASES


def test_kubectl_apply_can_take_it() -> None:
    assert len(json.dumps(crd())) < 262_144, (
        "larger than the annotation in which kubectl keeps what was applied"
    )


def test_the_verb_prints_it_as_yaml_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["crd"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == crd()
    assert call(["crd", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == crd()
