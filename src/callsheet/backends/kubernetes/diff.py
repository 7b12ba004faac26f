"""What a run of the file would change in the cluster, as text."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

import yaml

from callsheet.backends.kubernetes import names
from callsheet.backends.kubernetes.apply import Change

_NOISE = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "ownerReferences")


def lines(change: Change) -> Iterator[str]:
    """The differences of one object, as `diff -u` writes them."""
    before, after = clean(change.before), clean(change.after)
    if change.action == "replace" and before and after:
        # What will be made is not filled with the cluster's defaults yet: only what we say is compared.
        before = _like(before, after)
    name = f"{change.kind}/{change.name}"
    yield from difflib.unified_diff(
        _text(before), _text(after), f"{name} in the cluster", f"{name} in the file", lineterm=""
    )


def clean(found: dict[str, Any] | None) -> dict[str, Any]:
    """An object without what the cluster adds for itself."""
    if not found:
        return {}
    metadata = {key: value for key, value in found["metadata"].items() if key not in _NOISE}
    cleaned = {key: value for key, value in found.items() if key != "status"} | {"metadata": metadata}
    if found.get("kind") == "Secret":
        cleaned["data"] = dict.fromkeys(found.get("data") or {}, "(hidden)")
    if found.get("kind") == "ConfigMap" and found.get("data"):
        # The run's ConfigMap holds JSON, which is read more easily line by line.
        cleaned["data"] = {key: _opened(key, value) for key, value in found["data"].items()}
    return cleaned


def _opened(key: str, value: str) -> Any:
    return json.loads(value) if key in (names.ADDRESSES_FILE, names.EXPERIMENT_FILE) else value


def _like(value: Any, model: Any) -> Any:
    """The value, reduced to the keys that the model has; keys that only the cluster sets are left out."""
    if isinstance(value, dict) and isinstance(model, dict):
        return {key: _like(value[key], model[key]) for key in model if key in value}
    if _named(value) and _named(model):
        wanted = {item["name"]: item for item in model}
        return [_like(item, wanted[item["name"]]) if item["name"] in wanted else item for item in value]
    if isinstance(value, list) and isinstance(model, list) and len(value) == len(model):
        return [_like(one, other) for one, other in zip(value, model, strict=True)]
    return value


def _named(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) and "name" in item for item in value)


def _text(found: dict[str, Any]) -> list[str]:
    if not found:
        return []
    text: str = yaml.safe_dump(found, sort_keys=True, allow_unicode=True, width=200)
    return text.splitlines()
