"""Writes an experiment as data and as YAML that people like to read and that reads back as the same experiment."""

from __future__ import annotations

import re
from typing import Any

import yaml

from callsheet import contract
from callsheet.spec.experiment import Experiment
from callsheet.spec.yaml_scalars import resolve_plain

_LINE_ENDS = re.compile("[\r\x85\u2028\u2029\ufeff]")
_TAG = "tag:yaml.org,2002:"
_TAGS = {str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}


def to_data(experiment: Experiment) -> dict[str, Any]:
    """The experiment as JSON-compatible data: what was set, names first."""
    data = experiment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    spec = data["spec"]
    spec["roles"] = [_name_first(role) for role in spec["roles"]]
    for role in spec["roles"]:
        if "containers" in role:
            role["containers"] = [_name_first(container) for container in role.pop("containers")]
    return {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": data["metadata"],
        "spec": spec,
    }


def _name_first(data: dict[str, Any]) -> dict[str, Any]:
    return {"name": data["name"], **data}


def to_yaml(experiment: Experiment) -> str:
    """The experiment as a YAML document."""
    return dump(to_data(experiment))


def dump(data: Any) -> str:
    """Any JSON-compatible data as YAML in block style."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)


class _Dumper(yaml.SafeDumper):
    """Quotes exactly what our reader, which reads as kubectl does, would otherwise take for something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def resolve(self, kind: Any, value: Any, implicit: Any) -> str:
        if kind is yaml.ScalarNode and implicit[0]:
            return f"{_TAG}merge" if value == "<<" else _TAG + _TAGS[type(resolve_plain(value))]
        return super().resolve(kind, value, implicit)  # type: ignore[no-any-return, no-untyped-call]


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(f"{_TAG}str", text, style=_style(text))


def _style(text: str) -> str | None:
    """Long text line by line; what a reader of YAML might take for the end of a line only as an escape."""
    if _LINE_ENDS.search(text):
        return '"'
    lines = text.split("\n")
    block = len(lines) > 1 and not text[0].isspace() and all(line == line.rstrip() for line in lines)
    return "|" if block else None


_Dumper.add_representer(str, _represent_text)
