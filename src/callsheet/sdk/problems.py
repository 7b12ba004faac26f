"""Says what is wrong with a value given in Python, in the words that a mistake in a file gets."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from callsheet.errors import Problem, did_you_mean
from callsheet.spec.quantity import instead_of_float


def problems_in(error: ValidationError, cls: type[BaseModel], where: str) -> list[Problem]:
    """One problem per error. `where`: path of the thing that was checked."""
    found = []
    for details in error.errors(include_url=False):
        message, fix = _say(details, cls)
        found.append(Problem(path=_path(where, details), message=message, fix=fix))
    return found


def _path(where: str, details: ErrorDetails) -> str:
    path = where
    for step in details["loc"]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path


def _say(details: ErrorDetails, cls: type[BaseModel]) -> tuple[str, str]:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    last = details["loc"][-1] if details["loc"] else ""
    if kind == "missing":
        return f"{last!r} is missing", f"give {last}"
    if kind == "extra_forbidden":
        return f"there is no field {last!r}", _near(str(last), cls, details)
    if kind == "string_type":
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        return f"{value!r} is not text", f'write "{value}"' if plain else "write it in quotes"
    if kind in ("int_type", "int_from_float"):
        return f"{value!r} is not a whole number", "write a whole number without quotes"
    if kind == "bool_type":
        return f"{value!r} is neither True nor False", "write True or False"
    if kind == "literal_error":
        return f"{value!r} is not possible here", f"write one of {context['expected']}"
    if kind == "quantity" and isinstance(value, float):
        return details["msg"], instead_of_float(str(last), str(value))
    if "fix" in context:
        return details["msg"], str(context["fix"])
    return f"{value!r}: {details['msg'][:1].lower()}{details['msg'][1:]}", ""


def _near(word: str, cls: type[BaseModel], details: ErrorDetails) -> str:
    """The field that was probably meant; only fields of the checked model itself are known here."""
    known: Collection[str] = cls.model_fields if len(details["loc"]) == 1 else ()
    return did_you_mean(word, known, f"write one of {', '.join(known)}" if known else "remove it")
