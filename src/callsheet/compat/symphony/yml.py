"""The raw Kubernetes data behind a process or a group, which Symphony scripts may edit by hand.

The methods of the specs write into it, and the translation reads it. What Callsheet has a field for becomes that
field; the rest becomes a raw patch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from callsheet.errors import UserError


class Tree(dict[str, Any]):
    """A mapping whose keys are attributes too: ``data.spec.hostNetwork = True``."""

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        for key, value in (given or {}).items():
            self[key] = value

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, Tree(value) if isinstance(value, Mapping) else value)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") or key not in self:
            raise AttributeError(key)
        return self[key]

    def __setattr__(self, key: str, value: Any) -> None:
        self[key] = value

    def child(self, key: str) -> Tree:
        """The mapping under a key, made when absent."""
        if not isinstance(self.get(key), Tree):
            self[key] = {}
        child: Tree = self[key]
        return child

    def merge(self, new: Mapping[str, Any]) -> None:
        """Take over a mapping, key by key, at any depth."""
        for key, value in new.items():
            if isinstance(value, Mapping):
                self.child(key).merge(value)
            else:
                self[key] = value


def plain(value: Any) -> Any:
    """As built-in types."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


class KubeConfigYML:
    """Raw data with Symphony's two calls."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = Tree(data)

    def set_attr(self, new_config: Mapping[str, Any]) -> None:
        """Merge a mapping into the data."""
        self.data.merge(new_config)

    def yml(self) -> str:
        """The data as YAML."""
        text: str = yaml.safe_dump(plain(self.data), sort_keys=False)
        return text


_CONTAINER_FIELDS = {
    "image": "image",
    "imagePullPolicy": "image_pull_policy",
    "command": "command",
    "args": "args",
    "env": "env",
    "resources": "resources",
    "volumeMounts": "volume_mounts",
}
_POD_FIELDS = {
    "nodeSelector": "node_selector",
    "tolerations": "tolerations",
    "priorityClassName": "priority_class_name",
    "imagePullSecrets": "image_pull_secrets",
    "serviceAccountName": "service_account_name",
}


class KubeContainerYML(KubeConfigYML):
    """One container."""

    def __init__(self, name: str, image: str | None) -> None:
        super().__init__({"name": name} | ({"image": image} if image else {}))
        self.name = name

    def fields(self) -> dict[str, Any]:
        """As keywords of a Callsheet container; what it has no field for as a patch."""
        data = plain(self.data)
        if data.pop("name", self.name) != self.name:
            raise UserError(
                f"container_yml of process {self.name!r} has another name, {self.data['name']!r}",
                fix="name the process when it is made",
            )
        known = {field: data.pop(key) for key, field in _CONTAINER_FIELDS.items() if key in data}
        return known | ({"container_patch": data} if data else {})


class KubePodYML(KubeConfigYML):
    """One pod."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {}}, "spec": {}}
        )

    def fields(self) -> dict[str, Any]:
        """As keywords of a Callsheet role; what it has no field for as a patch."""
        data = plain(self.data)
        spec, metadata = data.pop("spec", {}), data.pop("metadata", {})
        if metadata.pop("name", self.name) != self.name or "containers" in spec:
            raise UserError(
                f"pod_yml of {self.name!r} sets what the experiment itself decides: its name or its containers",
                fix="remove metadata.name and spec.containers; use the processes' container_yml",
            )
        spec.pop("volumes", None)
        known: dict[str, Any] = {field: spec.pop(key) for key, field in _POD_FIELDS.items() if key in spec}
        if "restartPolicy" in spec:
            known["restart"] = {"policy": spec.pop("restartPolicy")}
        if "terminationGracePeriodSeconds" in spec:
            known["termination_grace_period"] = f"{spec.pop('terminationGracePeriodSeconds')}s"
        known |= {key: metadata.pop(key) for key in ("labels", "annotations") if metadata.get(key)}
        metadata.pop("labels", None)
        patch = {key: value for key, value in (("metadata", metadata), ("spec", spec)) if value}
        return known | ({"pod_patch": patch} if patch else {})

    def volumes(self) -> dict[str, dict[str, Any]]:
        """The volumes that a script wrote into the pod by hand, by name."""
        listed = plain(self.data).get("spec", {}).get("volumes", [])
        return {volume["name"]: {k: v for k, v in volume.items() if k != "name"} for volume in listed}
