"""Turns the short forms that Python allows into the file's one form, and checks them in the call that made them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from callsheet.errors import InvalidExperiment, Problem, UserError, did_you_mean
from callsheet.spec import experiment as model
from callsheet.spec import kubernetes
from callsheet.spec.quantity import instead_of_float

M = TypeVar("M", bound=BaseModel)
B = TypeVar("B", bound=model.Bind)


def checked(cls: type[M], fields: Mapping[str, Any], where: str) -> M:
    """The model with these fields; mistakes are reported as they are for a file. `where`: its path."""
    try:
        return cls.model_validate(dict(fields))
    except ValidationError as error:
        raise InvalidExperiment(_problems(error, cls, where)) from None


def fields_of(given: BaseModel, without: Collection[str] = ()) -> dict[str, Any]:
    """The fields that were set."""
    return {name: getattr(given, name) for name in given.model_fields_set.difference(without)}


def texts(field: str, value: Any) -> list[Any]:
    """A list of strings. A single string is rejected: a shell would split it, Callsheet does not."""
    if isinstance(value, str):
        words = value.split()
        raise UserError(f"{field}={value!r} is one string", fix=f"write a list: {field}={words!r}")
    return list(value)


def env(value: Any, where: str) -> list[Any]:
    """Variables from a mapping or from the file's list."""
    if not isinstance(value, Mapping):
        return list(value)
    return [variable(name, content, where) for name, content in value.items()]


def variable(name: str, value: Any, where: str) -> kubernetes.EnvVar:
    """One variable: text, or where its value comes from."""
    key = "value_from" if isinstance(value, (Mapping, kubernetes.EnvSource)) else "value"
    return checked(kubernetes.EnvVar, {"name": name, key: value}, f"{where}.env[{name}]")


def endpoints(cls: type[B], field: str, items: Iterable[Any], **more: Any) -> list[B]:
    """Endpoints from names, from mappings of names to ports, and from models."""
    made: list[B] = []
    for item in items:
        if isinstance(item, cls):
            made.append(item)
            continue
        pairs = item if isinstance(item, Mapping) else {item: None}
        for name, port in pairs.items():
            given = {"name": name, **more} | ({} if port is None else {"port": port})
            made.append(checked(cls, given, f"{field}[{name}]"))
    return made


def merged(old: Iterable[M], new: Iterable[M], key: str = "name") -> list[M]:
    """Both lists; a new item replaces the old one of the same name."""
    by_name = {getattr(item, key): item for item in old}
    by_name.update({getattr(item, key): item for item in new})
    return list(by_name.values())


def quantity(value: Any) -> Any:
    """A number as Kubernetes writes it: 1.5 becomes "1.5", 2.0 becomes "2"."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return value


def resources(pairs: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, as quantities."""
    return {name: quantity(value) for name, value in pairs.items() if value is not None}


def _items(value: Any) -> Iterable[Any]:
    return [value] if isinstance(value, (str, Mapping)) else value


NORMAL: dict[str, Callable[[Any, str], Any]] = {
    "command": lambda value, where: texts("command", value),
    "args": lambda value, where: texts("args", value),
    "connects": lambda value, where: texts("connects", value),
    "env": lambda value, where: env(value, where),
    "binds": lambda value, where: endpoints(model.Bind, f"{where}.binds", _items(value)),
    "exposes": lambda value, where: endpoints(model.Expose, f"{where}.exposes", _items(value)),
    "workdir": lambda value, where: {"path": value} if isinstance(value, str) else value,
}
"""Fields for which Python offers a shorter form than the file."""


def normal(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Keywords in the file's form: shorter forms written out, any sequence as a list, any mapping as a dict."""
    return {
        name: _plain(NORMAL[name](value, where) if name in NORMAL else value)
        for name, value in fields.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def _problems(error: ValidationError, cls: type[BaseModel], where: str) -> list[Problem]:
    """One problem per error. `where`: path of the thing that was checked."""
    return [
        Problem(_path(where, details), *_message(details, cls)) for details in error.errors(include_url=False)
    ]


def _path(where: str, details: ErrorDetails) -> str:
    path = where
    for step in details["loc"]:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path


def _message(details: ErrorDetails, cls: type[BaseModel]) -> tuple[str, str]:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    last = details["loc"][-1] if details["loc"] else ""
    if kind == "missing":
        return f"{last!r} is missing", f"set {last}"
    if kind == "extra_forbidden":
        return f"there is no field {last!r}", _suggestion(str(last), cls, details)
    if kind == "string_type":
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        return f"{value!r} is not text", f'write "{value}"' if plain else "put it in quotes"
    if kind in ("int_type", "int_from_float"):
        return f"{value!r} is not a whole number", "write a whole number without quotes"
    if kind == "bool_type":
        return f"{value!r} is neither True nor False", "write True or False"
    if kind == "literal_error":
        return f"{value!r} is not allowed here", f"use one of {context['expected']}"
    if kind == "quantity" and isinstance(value, float):
        return details["msg"], instead_of_float(str(last), str(value))
    if "fix" in context:
        return details["msg"], str(context["fix"])
    return f"{value!r}: {details['msg'][:1].lower()}{details['msg'][1:]}", ""


def _suggestion(word: str, cls: type[BaseModel], details: ErrorDetails) -> str:
    """The field that was probably meant; only fields of the checked model itself are known here."""
    known: Collection[str] = cls.model_fields if len(details["loc"]) == 1 else ()
    return did_you_mean(word, known, f"use one of {', '.join(known)}" if known else "remove it")
