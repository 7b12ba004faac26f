"""The custom resource that lets `kubectl apply` take an experiment file: made from the models, so that it never lags.

The API server fills in defaults and rejects what it can: wrong types, patterns, duplicate names and what `crd_rules`
forbids. What needs more than CEL (placeholders, files) is left to `callsheet validate`.
"""

from __future__ import annotations

from typing import Any

from callsheet import contract
from callsheet.spec.crd_rules import add_rules
from callsheet.spec.schema import schema

GROUP, VERSION = contract.API_VERSION.split("/")
PLURAL = "experiments"

Node = dict[str, Any]

_COLUMNS = (
    ("Phase", "string", ".status.phase", "Phase of the run."),
    ("Ready", "string", ".status.ready", "Ready replicas, of those wanted."),
    ("Steps", "integer", ".status.steps", "Environment steps so far."),
    ("Return", "number", ".status.return", "The latest mean return."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since it was created."),
)
PHASES = ("Pending", "Starting", "Running", "Suspended", "Stopping", "Succeeded", "Failed", "Stopped")


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
    parts["status"] = _status()
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


def _whole(description: str) -> Node:
    return {"type": "integer", "format": "int64", "minimum": 0, "description": description}


def _text(description: str, **more: Any) -> Node:
    return {"type": "string", "description": description, **more}


def _status() -> Node:
    """The schema of `status`; only the operator writes it."""
    return {
        "type": "object",
        "description": "State of the run, written by the operator.",
        "properties": {
            "observedGeneration": _whole("The generation of the object that this status describes."),
            "run": _text("The run's id."),
            "phase": _text("Phase of the run.", enum=list(PHASES)),
            "reason": _text("Why the run is in this phase, in one sentence."),
            "exitCode": {"type": "integer", "format": "int32", "description": "The run's exit code."},
            "ready": _text("Ready replicas, of those wanted: `3/4`."),
            "restarts": _whole("Restarts after failures so far."),
            "steps": _whole("Environment steps so far."),
            "return": {"type": "number", "description": "The latest mean return."},
            "started": _text("When the run began.", format="date-time"),
            "finished": _text("When the run ended.", format="date-time"),
            "exposed": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Address of each exposed endpoint.",
            },
            "roles": {
                "type": "array",
                "description": "Replica counts of each role.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": _role_status(),
            },
            "conditions": {
                "type": "array",
                "description": "The same as Kubernetes conditions, for tools that wait for them.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": _condition(),
            },
        },
    }


def _role_status() -> Node:
    return {
        "type": "object",
        "description": "Replica counts of one role.",
        "required": ["name"],
        "properties": {
            "name": _text("The role's name."),
            "wanted": _whole("Replicas that should run."),
            "ready": _whole("Replicas that are ready."),
            "succeeded": _whole("Replicas that exited with 0."),
            "failed": _whole("Replicas that failed and are not restarted."),
            "restarts": _whole("Restarts after failures so far."),
        },
    }


def _condition() -> Node:
    return {
        "type": "object",
        "description": "One aspect of the state.",
        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {
            "type": _text("Which aspect: `Ready`, `Finished`."),
            "status": _text("Whether it holds.", enum=["True", "False", "Unknown"]),
            "observedGeneration": _whole("The generation of the object that this condition describes."),
            "lastTransitionTime": _text("When it last changed.", format="date-time"),
            "reason": _text("One word for tools."),
            "message": _text("One sentence for people."),
        },
    }
