"""Volumes belong to a pod in a DIJob and to the experiment in Callsheet; kinds that Callsheet lacks stay in the pod."""

from __future__ import annotations

from typing import Any

from callsheet.compat.dijob.job import DIJob
from callsheet.spec import yaml_tree as tree
from callsheet.spec.kubernetes import Volume, VolumeMount
from callsheet.spec.schema import keys
from callsheet.spec.yaml_tree import Loc, MappingNode, Node


class Volumes:
    """The volumes of all pods; different ones with the same name are renamed."""

    def __init__(self, job: DIJob, common: Loc) -> None:
        self.job = job
        self.made: dict[str, Any] = {}
        """The experiment's volumes by name."""
        self._common = common
        self._names: dict[str, dict[str, str]] = {}
        """By task: what each volume of its pod is called in the experiment."""
        self._raw: dict[str, dict[str, Node]] = {}
        """By task: the volumes of its pod as they were written."""
        self._patched: dict[str, set[str]] = {}

    def declare(self, loc: Loc, task: str) -> None:
        """Add the volumes of a task's pod and those that all pods have."""
        names = self._names.setdefault(task, {})
        raw = self._raw.setdefault(task, {})
        for place in (*self.job.items(self._common), *self.job.items(loc)):
            node, name = self.job.nearest(place), self.job.text((*place, "name"))
            raw[name] = node
            if not isinstance(node, MappingNode) or not set(self.job.keys(place)) <= set(keys(Volume)):
                continue
            chosen = name
            if tree.to_data(self.made.setdefault(name, node)) != tree.to_data(node):
                chosen = f"{task}-{name}"
                entries = node.entries | {"name": tree.MappingEntry(tree.from_data(chosen))}
                self.made[chosen] = MappingNode(node.line, node.column, entries=entries)
            names[name] = chosen

    def mounts(self, loc: Loc, task: str) -> tuple[list[Any], list[Any]]:
        """A container's mounts: those that Callsheet has, and those that only Kubernetes knows."""
        plain: list[Any] = []
        patched: list[Any] = []
        for place in self.job.items(loc):
            node, name = self.job.nearest(place), self.job.text((*place, "name"))
            known = set(self.job.keys(place)) <= set(keys(VolumeMount))
            if name in self._raw[task] and (not known or name not in self._names[task]):
                patched.append(node)
                self._patched.setdefault(task, set()).add(name)
            elif isinstance(node, MappingNode) and self._names[task].get(name, name) != name:
                entry = tree.MappingEntry(tree.from_data(self._names[task][name]))
                plain.append(MappingNode(node.line, node.column, entries=node.entries | {"name": entry}))
            else:
                plain.append(node)
        return plain, patched

    def patched(self, task: str) -> list[Node]:
        """The volumes that must stay in the task's pod."""
        return [self._raw[task][name] for name in sorted(self._patched.get(task, ()))]
