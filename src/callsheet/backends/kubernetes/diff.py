"""What `callsheet run` would change in the cluster, as text."""

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
        # The new object has none of the cluster's defaults yet: only what we set is compared.
        before = _like(before, after)
    name = f"{change.kind}/{change.name}"
    yield from difflib.unified_diff(
        _text(before), _text(after), f"{name} in the cluster", f"{name} in the file", lineterm=""
    )


def clean(original: dict[str, Any] | None) -> dict[str, Any]:
    """An object without what the cluster adds."""
    if not original:
        return {}
    metadata = {key: value for key, value in original["metadata"].items() if key not in _NOISE}
    cleaned = {key: value for key, value in original.items() if key != "status"} | {"metadata": metadata}
    if original.get("kind") == "Secret":
        cleaned["data"] = dict.fromkeys(original.get("data") or {}, "(hidden)")
    if original.get("kind") == "ConfigMap" and original.get("data"):
        # The run's ConfigMap contains JSON, which is easier to read line by line.
        cleaned["data"] = {key: _opened(key, value) for key, value in original["data"].items()}
    return cleaned


def _opened(key: str, value: str) -> Any:
    return json.loads(value) if key in (names.ADDRESSES_FILE, names.EXPERIMENT_FILE) else value


def _like(value: Any, model: Any) -> Any:
    """The value, reduced to the keys that the model has; without those that only the cluster sets."""
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


def _text(cleaned: dict[str, Any]) -> list[str]:
    if not cleaned:
        return []
    text: str = yaml.safe_dump(cleaned, sort_keys=True, allow_unicode=True, width=200)
    return text.splitlines()
