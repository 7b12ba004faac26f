"""The custom resource that lets `kubectl apply` take an experiment file: made from the models, so that it never lags.

The API server fills in defaults, prunes nothing that is ours, and refuses by itself what it can: types, patterns, duplicate
names and the rules of `crd_rules`. What needs more than CEL (words in braces, files) is left to `callsheet validate`.
"""

from __future__ import annotations

from typing import Any

from callsheet import contract
from callsheet.spec.crd_rules import add_rules
from callsheet.spec.crd_status import status
from callsheet.spec.schema import schema

GROUP, VERSION = contract.API_VERSION.split("/")
PLURAL = "experiments"

Node = dict[str, Any]

_COLUMNS = (
    ("Phase", "string", ".status.phase", "Where the run is in its life."),
    ("Ready", "string", ".status.ready", "Replicas that are ready, of those wanted."),
    ("Steps", "integer", ".status.steps", "Environment steps so far."),
    ("Return", "number", ".status.return", "The newest mean return."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since it was made."),
)


def crd() -> Node:
    """The CustomResourceDefinition of an experiment."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": contract.KIND,
                "listKind": f"{contract.KIND}List",
                "plural": PLURAL,
                "singular": contract.KIND.lower(),
                "shortNames": ["exp"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path, "description": text}
                        for name, kind, path, text in _COLUMNS
                    ],
                    "schema": {"openAPIV3Schema": _schema()},
                }
            ],
        },
    }


def _schema() -> Node:
    root = _with_useful_defaults(schema())
    parts = root["properties"]
    for key in ("apiVersion", "kind"):
        parts[key] = {"type": "string", "description": parts[key]["description"]}
    # Kubernetes describes metadata itself, and takes rules for its name alone.
    name = parts["metadata"]["properties"]["name"]
    rules = {key: name[key] for key in ("type", "pattern", "maxLength")}
    parts["metadata"] = {"type": "object", "properties": {"name": rules}}
    parts["status"] = status()
    add_rules(root)
    return root


def _with_useful_defaults(node: Node) -> Node:
    """Defaults that say something; empty ones would fill every stored object with noise."""
    made = {key: value for key, value in node.items() if key != "default"}
    default = _said(node.get("default"))
    if default is not None:
        made["default"] = default
    if "properties" in node:
        made["properties"] = {key: _with_useful_defaults(value) for key, value in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in node:
            made[key] = _with_useful_defaults(node[key])
    return made


def _said(default: Any) -> Any:
    """A default without its empty parts; None when nothing is left."""
    if isinstance(default, dict):
        said = {key: _said(value) for key, value in default.items()}
        return {key: value for key, value in said.items() if value is not None} or None
    return None if default in (None, "", False) or default == [] else default
