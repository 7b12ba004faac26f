"""Turns pydantic's errors into messages about the file: what is there, and what to write instead."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic_core import ErrorDetails

from callsheet.errors import did_you_mean, nearest
from callsheet.spec import yaml_tree as tree
from callsheet.spec.experiment import LABEL_PATTERN, LABEL_RULE
from callsheet.spec.quantity import instead_of_float
from callsheet.spec.schema import keys, model_at, models
from callsheet.spec.yaml_scalars import resolve_plain
from callsheet.spec.yaml_tree import Loc, MappingNode, Node, ScalarNode, SequenceNode

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_INSTEAD = {
    "ports": "write binds: [{name: NAME, port: NUMBER}]",
    "restartPolicy": "write restart: {policy: ...}",
    "terminationGracePeriodSeconds": "write terminationGracePeriod: 30s",
    "workingDir": "set spec.workdir.path",
    "gpus": "write resources: {limits: {nvidia.com/gpu: 1}}",
    "livenessProbe": "put it in containerPatch",
    "initContainers": "put them in podPatch",
}
"""Keys that people know from other tools."""
_PLAIN = re.compile(r"(?!-( |$))[A-Za-z0-9_./+-][A-Za-z0-9_./+=-]*([ :][A-Za-z0-9_./+=-]+)*")
"""What needs no quotes in a YAML list, unless it reads as a number or a boolean."""
_LABELED = ("metadata", "roles", "containers", "binds", "exposes", "volumes")
"""Whose names are DNS labels."""
_HOMES = {"ExperimentSpec": "spec", "Lifecycle": "spec.lifecycle", "Metadata": "metadata", "Role": "the role"}
"""Where a misplaced key may belong, by model."""


@dataclass(frozen=True, slots=True)
class ShapeMistake:
    """A value of the wrong shape, an unknown key or a missing one."""

    loc: Loc
    """Location of the wrong value, or of the key if that is missing."""
    message: str
    """Empty if another mistake says the same."""
    fix: str = ""
    at_key: bool = False
    missing: bool = False


def shape_mistakes(root: Node, errors: Iterable[ErrorDetails]) -> list[ShapeMistake]:
    """One mistake for each wrong value; pydantic reports a union's members one by one."""
    by_place: dict[Loc, list[ErrorDetails]] = {}
    for error in errors:
        loc = tree.existing(root, error["loc"])
        if error["type"] == "missing":
            loc = (*loc, error["loc"][len(loc)])
        by_place.setdefault(loc, []).append(error)
    mistakes = [_shape_mistake(root, loc, here) for loc, here in by_place.items()]
    # A misspelled key is one mistake, not an unknown key and a missing one.
    misspelled = {(f.loc[:-1], near_key(f.loc)) for f in mistakes if f.at_key}
    return [
        ShapeMistake(f.loc, "", missing=True) if f.missing and (f.loc[:-1], f.loc[-1]) in misspelled else f
        for f in mistakes
    ]


def near_key(loc: Loc) -> str:
    """The key that an unknown one was probably meant to be; empty if none is near."""
    model = model_at(loc[:-1])
    return nearest(str(loc[-1]), keys(model), cutoff=0.7) if model else ""


def _shape_mistake(root: Node, loc: Loc, errors: list[ErrorDetails]) -> ShapeMistake:
    error = errors[0]
    kind = error["type"]
    node = tree.find(root, loc)
    if kind == "missing":
        return _missing(root, loc, node)
    if kind == "extra_forbidden":
        return ShapeMistake(loc, f"unknown key {str(loc[-1])!r}", _meant(loc), at_key=True)
    if kind in _EXPECTED:
        expected = list(dict.fromkeys(_EXPECTED[e["type"]] for e in errors if e["type"] in _EXPECTED))
        return ShapeMistake(loc, *_wrong_type(loc, node, expected))
    shown = node.text if isinstance(node, ScalarNode) else "this"
    context = error.get("ctx", {})
    if kind == "literal_error":
        return ShapeMistake(
            loc, *_wrong_choice(shown, re.findall(r"'([^']*)'", str(context.get("expected", ""))))
        )
    if kind == "greater_than_equal":
        return ShapeMistake(loc, f"{shown} is too small", f"write at least {context['ge']}")
    if kind == "less_than_equal":
        return ShapeMistake(loc, f"{shown} is too large", f"write at most {context['le']}")
    if kind == "too_short":
        return ShapeMistake(loc, f"{loc[-1]} is empty", "add at least one")
    fix = str(context.get("fix", ""))
    if kind == "quantity" and isinstance(node, ScalarNode) and isinstance(node.value, float):
        fix = instead_of_float(str(loc[-1]), node.text)
    return ShapeMistake(
        loc, error["msg"] if not isinstance(node, ScalarNode) else _reworded(error["msg"], node), fix
    )


def _reworded(message: str, node: ScalarNode) -> str:
    """pydantic shows the parsed value; people look for what they wrote."""
    return re.sub(r"^.*? is not ", lambda _: f"{_shown(node)} is not ", message)


def _missing(root: Node, loc: Loc, parent: Node) -> ShapeMistake:
    key = str(loc[-1])
    known = keys(model) if (model := model_at(loc[:-1])) else {}
    strangers = [k for k in parent.entries if k not in known] if isinstance(parent, MappingNode) else []
    near = nearest(key, strangers)
    fix = f"did you mean {key} instead of {near}?" if near else f"add {key}: ..."
    return ShapeMistake(loc, f"{key} is missing", fix, missing=True)


def _meant(loc: Loc) -> str:
    key = str(loc[-1])
    if key in _INSTEAD:
        return _INSTEAD[key]
    at_home = {model.__name__ for model in models() if key in keys(model)}
    for home, where in _HOMES.items():
        if home in at_home:
            return f"move it: {key} belongs under {where}"
    if near := near_key(loc):
        return f"did you mean {near}?"
    model = model_at(loc[:-1])
    return f"valid keys are {', '.join(keys(model) if model else ())}"


def _wrong_choice(shown: str, choices: list[str]) -> tuple[str, str]:
    named = [choice for choice in choices if choice]
    listed = " or ".join([*([", ".join(named[:-1])] if named[:-1] else []), *named[-1:]])
    fix = did_you_mean(shown, named, f"write {listed}", cutoff=0.5)
    return f"{shown!r} is not one of {', '.join(named)}", fix


def _wrong_type(loc: Loc, node: Node, expected: list[str]) -> tuple[str, str]:
    wanted = " or ".join(expected)
    message = f"expected {wanted}, found {_shown(node)}"
    if "text" in expected:
        return _not_text(loc, node, message)
    if wanted == "a list":
        return message, _as_list(str(loc[-1]), node)
    if wanted == "a mapping":
        return message, _as_mapping(loc, node)
    if isinstance(node, ScalarNode) and not node.plain and re.fullmatch(r"[0-9]+|true|false", node.text):
        return message, f"remove the quotes: {node.text}"
    return message, f"write {wanted}"


def _shown(node: Node) -> str:
    if isinstance(node, SequenceNode):
        return "a list"
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node.value, bool):
        return f"the boolean {node.text}"
    if isinstance(node.value, int | float):
        return f"the number {node.text}"
    return "nothing" if node.value is None else repr(node.text)


def _not_text(loc: Loc, node: Node, message: str) -> tuple[str, str]:
    if isinstance(node, ScalarNode):
        quoted = f'quote it: "{node.text}"'
        if _is_label(loc) and not re.fullmatch(LABEL_PATTERN, node.text):
            return message, f"write a name: {LABEL_RULE}"
        if isinstance(node.value, bool):
            return (
                f"YAML reads an unquoted {node.text} as {str(node.value).lower()}, but text is expected",
                quoted,
            )
        return message, quoted if node.text else 'write "" for an empty text'
    if isinstance(node, MappingNode) and node.entries:
        name = node.get("name")
        if "connects" in loc and isinstance(name, ScalarNode):
            return message, f"write the name alone: {name.text}"
        written = _as_written(node)
        return (
            f"YAML reads an unquoted {written} as a mapping, but text is expected",
            f'write "{written}" in quotes',
        )
    return message, "write text; quote it if it contains braces or brackets"


def _is_label(loc: Loc) -> bool:
    """Whether the value is a name that must be a DNS label."""
    inside = [step for step in loc[:-1] if isinstance(step, str)][-1:]
    return loc[-1] == "name" and inside != [] and inside[0] in _LABELED


def _as_written(node: MappingNode) -> str:
    """A small mapping as it was probably written."""
    values = {key: entry.value for key, entry in node.entries.items()}
    if all(isinstance(value, ScalarNode) and not value.text for value in values.values()):
        return "{" + ", ".join(values) + "}"
    return ", ".join(
        f"{key}: {value.text if isinstance(value, ScalarNode) else '...'}" for key, value in values.items()
    )


def _as_list(key: str, node: Node) -> str:
    if isinstance(node, ScalarNode):
        if key in ("command", "args"):
            return f"write a list: [{', '.join(_quoted(word) for word in _words(node.text))}]"
        return (
            f"write a list: [{{name: {node.text}}}]"
            if key in ("binds", "exposes")
            else f"write a list: [{node.text}]"
        )
    if isinstance(node, MappingNode) and node.entries:
        first, entry = next(iter(node.entries.items()))
        value = entry.value.text if isinstance(entry.value, ScalarNode) else "..."
        if key in ("binds", "exposes"):
            return f"write a list: [{{name: {first}, port: {value or 'NUMBER'}}}]"
        if key == "env":
            return f'write a list: [{{name: {first}, value: "{value}"}}]'
        if key in ("roles", "containers", "volumes"):
            return f"write a list whose items have a name: - name: {first}"
    return "write a list: each item on its own line, starting with '- '"


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _quoted(word: str) -> str:
    """A word that stays text when pasted into a YAML list."""
    safe = _PLAIN.fullmatch(word) and isinstance(resolve_plain(word), str)
    return word if safe else json.dumps(word, ensure_ascii=False)


def _as_mapping(loc: Loc, node: Node) -> str:
    if isinstance(node, ScalarNode) and isinstance(loc[-1], int) and len(loc) > 1:
        name, equals, value = node.text.partition("=")
        if loc[-2] == "env" and equals:
            return f'write {{name: {name}, value: "{value}"}}'
        model = model_at(loc)
        if model and "name" in keys(model):
            return f"write {{name: {node.text}}}"
    return "write a mapping: key: value"
