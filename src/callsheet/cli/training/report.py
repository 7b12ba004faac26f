"""What `callsheet train` prints besides the run: the table of settings, and the result at the end."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from callsheet.cli import formatting, options, output, results
from callsheet.cli.training import resume
from callsheet.errors import CallsheetError

if TYPE_CHECKING:
    from callsheet.backends.base import Backend, Status
    from callsheet.rl.settings import Training

_HEADER = ("SETTING", "VALUE", "DESCRIPTION")


def settings_table(training: Training) -> str:
    """Every setting with the value that this training would use."""
    from callsheet.rl.algorithms import algorithm

    return output.table(_HEADER, list(_rows(algorithm(training.algorithm).settings(training))))


def _rows(settings: Any, prefix: str = "") -> Any:
    docs = field_docs(type(settings))
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, msgspec.Struct):
            yield from _rows(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", msgspec.json.encode(value).decode(), docs.get(field.name, "")


def field_docs(kind: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring below each field of a class and of its bases."""
    docs: dict[str, str] = {}
    for one in reversed(kind.__mro__[: kind.__mro__.index(msgspec.Struct)]):
        tree = ast.parse(inspect.getsource(inspect.getmodule(one) or one))
        body = next(
            node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == one.__name__
        )
        for field, text in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                docs[field.target.id] = " ".join(str(text.value.value).split())
    return docs


def report_end(ended: Sequence[Status], backend: Backend) -> None:
    """Print the result of a training and useful next commands; nothing if it stored no results."""
    status = ended[0]
    where = options.where(backend.name)
    try:
        _, training = resume.earlier(status.run, backend)
        result = _result(results.of(status).url)
    except CallsheetError:
        return
    again: list[tuple[str, str]] = []
    if result:
        output.say(f"  {_sentence(result)}")
    else:
        line = f"callsheet train{where} {training.algorithm} --resume {status.experiment}"
        again.append((line, "resume from the newest checkpoint"))
    output.next_commands(
        [
            (f"callsheet plot{where} {status.experiment}", "draw the learning curve"),
            (
                f"callsheet evaluate{where} {status.experiment} --video",
                "evaluate the policy and record a video",
            ),
            *again,
        ]
    )


def _result(url: str) -> dict[str, Any]:
    """What the learner wrote at the end; empty if the training was stopped before."""
    from callsheet.store import NotFound, open_store

    try:
        result: dict[str, Any] = json.loads(open_store(url).get("result.json"))
    except (NotFound, ValueError):
        return {}
    return result


def _sentence(result: dict[str, Any]) -> str:
    seconds = float(result["seconds"])
    took = formatting.age(seconds) if seconds >= 60 else f"{seconds:.1f} s"
    scores = [("return", result["return"]), ("evaluation", result["evaluation"])]
    numbers = "".join(f", {name} {value:,.1f}" for name, value in scores if value is not None)
    return f"{result['steps']:,} steps in {took} of training{numbers}"
