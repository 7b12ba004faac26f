"""The JSON schema of an experiment, in the form that Kubernetes asks of a custom resource, and the reference page.

Kubernetes wants a *structural* schema: every value has one type, nothing refers elsewhere, nothing is nullable by
union. pydantic's own is freer, so it is rewritten here. ``python -m callsheet.spec.schema`` prints the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from callsheet.spec.experiment import Experiment
from callsheet.spec.quantity import Duration, Quantity
from callsheet.spec.yaml_tree import Loc

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_DROPPED = ("title", "$defs", "additionalProperties", "default", "const", "anyOf", "$ref")


@cache
def keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A model's fields by their key in a file; its name comes first, as people write it."""
    fields = {info.alias or name: info for name, info in model.model_fields.items()}
    return {"name": fields["name"], **fields} if "name" in fields else fields


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside a type such as ``list[Role]`` or ``Scale | None``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (list, dict, Union, UnionType, Annotated):
        inner = (model_in(argument) for argument in get_args(annotation))
        return next((model for model in inner if model), None)
    return None


def model_at(loc: Loc) -> type[BaseModel] | None:
    """The model of the mapping at a loc; None where keys are free."""
    model: type[BaseModel] | None = Experiment
    for step in loc:
        if isinstance(step, str):
            info = keys(model).get(step) if model else None
            model = model_in(info.annotation) if info else None
    return model


def models(root: type[BaseModel] = Experiment) -> Iterator[type[BaseModel]]:
    """Every model of an experiment, each once, in the order in which a reader meets them."""
    seen = [root]
    for model in seen:
        yield model
        for info in keys(model).values():
            inner = model_in(info.annotation)
            if inner and inner not in seen:
                seen.append(inner)


def schema() -> dict[str, Any]:
    """The structural schema of an experiment file."""
    raw = Experiment.model_json_schema(by_alias=True)
    return _structural(raw, raw["$defs"])


def _structural(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        # What a field says of itself is nearer to the reader than what its class says.
        return _structural(
            {**target, **{key: value for key, value in node.items() if key != "$ref"}}, definitions
        )
    choices = [choice for choice in node.get("anyOf", []) if choice.get("type") != "null"]
    if len(choices) == 1:
        around = {key: value for key, value in node.items() if key != "anyOf"}
        return _structural({**choices[0], **around}, definitions)
    made = {key: value for key, value in node.items() if key not in _DROPPED}
    if choices:
        made |= {"x-kubernetes-int-or-string": True, "anyOf": list(_INT_OR_STRING)}
    if "const" in node:
        made["enum"] = [node["const"]]
    if node.get("default") is not None:
        made["default"] = node["default"]
    if "properties" in node:
        made["properties"] = {
            key: _structural(value, definitions) for key, value in node["properties"].items()
        }
    elif isinstance(node.get("additionalProperties"), dict):
        made["additionalProperties"] = _structural(node["additionalProperties"], definitions)
    if "items" in node:
        made["items"] = _structural(node["items"], definitions)
    if "description" in made:
        made["description"] = " ".join(made["description"].split())
    return made


def reference() -> str:
    """The reference page of every field, in Markdown."""
    parts = [
        "# The experiment file",
        "",
        "Every key of an experiment file with its type, its default and its meaning. Keys that are not listed are",
        "mistakes, and `callsheet validate -f FILE` finds them. This page is made from the code.",
    ]
    for model in models():
        parts += ["", f"## {model.__name__}", "", _one_line(model.__doc__ or ""), ""]
        parts += ["| key | type | default | meaning |", "|---|---|---|---|"]
        parts += [_row(key, info) for key, info in keys(model).items()]
    return "\n".join(parts) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _row(key: str, info: FieldInfo) -> str:
    cells = (f"`{key}`", _type(info.annotation, info), _default(info), _one_line(info.description or ""))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(info: FieldInfo) -> str:
    # A key with one possible value marks the document: files must have it, Python fills it in.
    if info.is_required() or (get_origin(info.annotation) is Literal and len(get_args(info.annotation)) == 1):
        return "required"
    value = info.default
    if isinstance(value, BaseModel):
        return ""
    if value is None or value is PydanticUndefined or value in ("", [], {}):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _type(annotation: Any, info: FieldInfo | None = None) -> str:
    """A type in words; models link to their section."""
    model = model_in(annotation)
    name = f"[{model.__name__}](#{model.__name__.lower()})" if model else ""
    named = _named(annotation, info)
    if named:
        return named
    origin, arguments = get_origin(annotation), [a for a in get_args(annotation) if a is not NoneType]
    if origin is Annotated:
        return _type(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(_type(argument) for argument in arguments)
    if origin is Literal:
        return " or ".join(f"`{argument}`" if argument else "empty" for argument in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "mapping" if arguments[1] is Any else f"mapping of text to {_type(arguments[1])}"
    return name or {str: "text", int: "whole number", bool: "true or false"}.get(annotation, "any")


def _named(annotation: Any, info: FieldInfo | None) -> str:
    """Types that have a name of their own; pydantic keeps what belongs to the field itself apart from its type."""
    for kind, name in ((Quantity, "quantity"), (Duration, "duration")):
        marks = get_args(kind)[1:]
        if annotation == kind or (info and info.metadata and marks[0] in info.metadata):
            return name
    return ""


if __name__ == "__main__":
    sys.stdout.write(reference())
