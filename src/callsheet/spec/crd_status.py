"""What a cluster tells of an experiment: the schema of its status."""

from __future__ import annotations

from typing import Any

Node = dict[str, Any]

PHASES = ("Pending", "Starting", "Running", "Suspended", "Stopping", "Succeeded", "Failed", "Stopped")


def _whole(description: str) -> Node:
    return {"type": "integer", "format": "int64", "minimum": 0, "description": description}


def _text(description: str, **more: Any) -> Node:
    return {"type": "string", "description": description, **more}


def status() -> Node:
    """The schema of `status`; only the operator writes it."""
    return {
        "type": "object",
        "description": "What became of it; written by the operator.",
        "properties": {
            "observedGeneration": _whole("The generation of the object that this status is about."),
            "run": _text("The id of the run."),
            "phase": _text("Where the run is in its life.", enum=list(PHASES)),
            "reason": _text("Why it is there, in one sentence."),
            "exitCode": {"type": "integer", "format": "int32", "description": "The run's exit code."},
            "ready": _text("Replicas that are ready, of those wanted: `3/4`."),
            "restarts": _whole("Restarts after failures so far."),
            "steps": _whole("Environment steps so far."),
            "return": {"type": "number", "description": "The newest mean return."},
            "started": _text("When the run began.", format="date-time"),
            "finished": _text("When the run ended.", format="date-time"),
            "exposed": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Where people reach each exposed endpoint.",
            },
            "roles": {
                "type": "array",
                "description": "The replicas of each role, counted.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": _role(),
            },
            "conditions": {
                "type": "array",
                "description": "Kubernetes' own form of the same, for tools that wait for it.",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
                "items": _condition(),
            },
        },
    }


def _role() -> Node:
    return {
        "type": "object",
        "description": "The replicas of one role, counted.",
        "required": ["name"],
        "properties": {
            "name": _text("The role's name."),
            "wanted": _whole("Replicas that should be there."),
            "ready": _whole("Replicas that are ready."),
            "succeeded": _whole("Replicas that ended with 0."),
            "failed": _whole("Replicas that failed for good."),
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
            "observedGeneration": _whole("The generation of the object that this is about."),
            "lastTransitionTime": _text("When it last changed.", format="date-time"),
            "reason": _text("One word for tools."),
            "message": _text("One sentence for people."),
        },
    }
