"""What every spec of a Symphony script shares: a checked name, and JSON and YAML in and out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Self

import yaml

from callsheet.errors import UserError
from callsheet.spec.experiment import LABEL_PATTERN


def check_name(kind: str, name: object) -> str:
    """Symphony's rule, and Kubernetes': a DNS label."""
    if isinstance(name, str) and re.fullmatch(LABEL_PATTERN, name) and len(name) <= 63:
        return name
    near = re.sub(r"[^a-z0-9]+", "-", str(name).lower()).strip("-").lstrip("0123456789-")
    raise UserError(
        f"{kind} name {name!r} is not a DNS label",
        fix=f"use lower-case letters, digits and '-', beginning with a letter{f': {near!r}' if near else ''}",
    )


def no_counterpart(what: str, why: str, fix: str) -> UserError:
    """The error for what Symphony offered and Callsheet does not."""
    return UserError(f"{what} has no counterpart in Callsheet: {why}", fix=fix)


class BaseSpec:
    """A named part of an experiment that can be written down and read back."""

    kind = "spec"

    def __init__(self, name: str) -> None:
        self.name = check_name(self.kind, name)

    def dump_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"name": self.name}

    @classmethod
    def load_dict(cls, di: dict[str, Any]) -> Self:
        """The inverse of `dump_dict`."""
        made = cls(di["name"])
        made._load_dict(di)
        return made

    def _load_dict(self, di: dict[str, Any]) -> None:
        """Take over what was dumped beside the name."""

    def dump_json_str(self) -> str:
        """As JSON."""
        return json.dumps(self.dump_dict(), indent=2)

    def dump_json_file(self, file_path: str | Path) -> None:
        """As JSON, into a file."""
        Path(file_path).write_text(self.dump_json_str() + "\n")

    def dump_yaml_str(self) -> str:
        """As YAML."""
        text: str = yaml.safe_dump(self.dump_dict(), sort_keys=False)
        return text

    def dump_yaml_file(self, file_path: str | Path) -> None:
        """As YAML, into a file."""
        Path(file_path).write_text(self.dump_yaml_str())

    @classmethod
    def load_json_str(cls, text: str) -> Self:
        """From JSON."""
        return cls.load_dict(json.loads(text))

    @classmethod
    def load_json_file(cls, file_path: str | Path) -> Self:
        """From a JSON file."""
        return cls.load_json_str(Path(file_path).read_text())

    @classmethod
    def load_yaml_str(cls, text: str) -> Self:
        """From YAML."""
        return cls.load_dict(yaml.safe_load(text))

    @classmethod
    def load_yaml_file(cls, file_path: str | Path) -> Self:
        """From a YAML file."""
        return cls.load_yaml_str(Path(file_path).read_text())
