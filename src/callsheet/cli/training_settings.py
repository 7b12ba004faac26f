"""The settings of an algorithm as a table: what each is, and what it is for."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from callsheet.cli import output

if TYPE_CHECKING:
    from callsheet.rl.settings import Training

_HEADER = ("SETTING", "VALUE", "WHAT IT IS")


def table(training: Training) -> str:
    """Every setting with the value that this training would have."""
    from callsheet.rl.algorithms import algorithm

    return output.table(_HEADER, list(_rows(algorithm(training.algorithm).settings(training))))


def _rows(settings: Any, above: str = "") -> Any:
    told = documented(type(settings))
    for one in msgspec.structs.fields(settings):
        value = getattr(settings, one.name)
        if isinstance(value, msgspec.Struct):
            yield from _rows(value, f"{above}{one.name}.")
        else:
            shown = msgspec.json.encode(value).decode()
            yield f"{above}{one.name}", shown, told.get(one.name, "")


def documented(kind: type) -> dict[str, str]:
    """What stands below each field of a class."""
    tree = ast.parse(inspect.getsource(inspect.getmodule(kind) or kind))
    body = next(
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    found = {}
    for field, text in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found
