"""The schema is what Kubernetes asks of a custom resource, and the reference page says the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from callsheet.spec.experiment import Experiment
from callsheet.spec.schema import keys, models, reference, schema

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "experiment.md"
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def nodes(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for key, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from nodes(node[key], f"{path}.{key}")


def test_the_schema_is_structural() -> None:
    for path, node in nodes(schema()):
        free = node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
        assert free or "type" in node, path
        assert isinstance(node.get("type", ""), str), path
        assert not {"$ref", "$defs", "oneOf", "allOf", "not", "const", "nullable", "title"} & node.keys(), (
            path
        )
        assert "null" not in node.get("type", ""), path
        if "anyOf" in node:
            assert node.get("x-kubernetes-int-or-string") is True, path
            assert node["anyOf"] == INT_OR_STRING, path
            assert "type" not in node, path
        if "additionalProperties" in node:
            assert isinstance(node["additionalProperties"], dict), path
            assert "properties" not in node, path
        if node.get("type") == "array":
            assert "items" in node, path
        if node.get("type") == "object":
            assert {
                "properties",
                "additionalProperties",
                "x-kubernetes-preserve-unknown-fields",
            } & node.keys(), path
        assert node.get("default", 0) is not None, path


def test_every_property_has_a_description() -> None:
    for path, node in nodes(schema()):
        for key, inner in node.get("properties", {}).items():
            assert inner.get("description"), f"{path}.{key}"


def test_the_schema_knows_defaults_patterns_and_choices() -> None:
    role = schema()["properties"]["spec"]["properties"]["roles"]["items"]["properties"]
    assert role["replicas"]["default"] == 1
    assert role["replicas"]["minimum"] == 0
    assert role["restart"]["properties"]["policy"]["enum"] == ["Always", "OnFailure", "Never"]
    assert role["name"]["maxLength"] == 63
    assert role["binds"]["items"]["properties"]["port"]["maximum"] == 65535
    assert role["podPatch"]["x-kubernetes-preserve-unknown-fields"] is True
    cpu = role["resources"]["properties"]["limits"]["additionalProperties"]
    assert cpu["x-kubernetes-int-or-string"] is True
    assert schema()["properties"]["kind"]["enum"] == ["Experiment"]


def test_the_schema_holds_every_key_of_the_models() -> None:
    def missing(model: type[BaseModel], node: dict[str, Any]) -> set[str]:
        return keys(model).keys() ^ node["properties"].keys()

    root = schema()
    assert missing(Experiment, root) == set()
    described = {frozenset(node["properties"]) for _, node in nodes(root) if "properties" in node}
    assert {frozenset(keys(model)) for model in models()} == described


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text() == reference(), (
        "docs/reference/experiment.md is not what the models say; run: "
        "python -m callsheet.spec.schema > docs/reference/experiment.md"
    )


def test_the_reference_page_names_every_key_and_links_its_sections() -> None:
    page = reference()
    for model in models():
        assert f"\n## {model.__name__}\n" in page
        for key in keys(model):
            assert f"| `{key}` | " in page
    assert "| `replicas` | whole number | `1` | Number of replicas. |" in page
    assert "| `deadline` | duration |  |" in page
    assert "| `limits` | mapping of text to quantity |  |" in page
    assert "| `roles` | list of [Role](#role) | required |" in page
