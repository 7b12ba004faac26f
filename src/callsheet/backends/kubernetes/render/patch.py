"""Kubernetes' strategic merge: mappings merge key by key, lists of named things merge by name, null removes.

Only the lists that a pod template holds need a rule; every other list is replaced, as in Kubernetes.
"""

from __future__ import annotations

from typing import Any

_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "claims": "name",
    "schedulingGates": "name",
}
_DIRECTIVE = "$patch"


def merge(original: Any, patch: Any, field: str = "") -> Any:
    """The original with the patch applied; neither is changed."""
    if isinstance(original, dict) and isinstance(patch, dict):
        return _merge_mapping(original, patch)
    if isinstance(original, list) and isinstance(patch, list) and field in _MERGE_KEYS:
        return _merge_list(original, patch, _MERGE_KEYS[field])
    return patch


def _merge_mapping(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    patch = dict(patch)
    directive = patch.pop(_DIRECTIVE, "merge")
    if directive == "replace":
        return patch
    if directive == "delete":
        return {}
    result = dict(original)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value, key)
    return result


def _merge_list(original: list[Any], patch: list[Any], key: str) -> list[Any]:
    if any(isinstance(item, dict) and item.get(_DIRECTIVE) == "replace" and len(item) == 1 for item in patch):
        return [item for item in patch if _DIRECTIVE not in item]
    result = list(original)
    for item in patch:
        place = next((n for n, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if item.get(_DIRECTIVE) == "delete":
            result = [old for old in result if old.get(key) != item.get(key)]
        elif place is None:
            result.append({name: value for name, value in item.items() if name != _DIRECTIVE})
        else:
            result[place] = merge(result[place], item)
    return result
