"""Turns what Python people write into the file's one form, and checks it in the call where it was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from callsheet.errors import InvalidExperiment, UserError
from callsheet.sdk.problems import problems_in
from callsheet.spec import experiment as model
from callsheet.spec import kubernetes

M = TypeVar("M", bound=BaseModel)
B = TypeVar("B", bound=model.Bind)


def checked(cls: type[M], fields: Mapping[str, Any], where: str) -> M:
    """The model with these fields; what is wrong with them is told as a file's mistakes are. `where`: its path."""
    try:
        return cls.model_validate(dict(fields))
    except ValidationError as error:
        raise InvalidExperiment(problems_in(error, cls, where)) from None


def texts(field: str, value: Any) -> list[Any]:
    """A list of strings. One string is refused: a shell would split it, Callsheet does not."""
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
    found: list[B] = []
    for item in items:
        if isinstance(item, cls):
            found.append(item)
            continue
        pairs = item if isinstance(item, Mapping) else {item: None}
        for name, port in pairs.items():
            given = {"name": name, **more} | ({} if port is None else {"port": port})
            found.append(checked(cls, given, f"{field}[{name}]"))
    return found


def merged(old: Iterable[M], new: Iterable[M], key: str = "name") -> list[M]:
    """Both lists; an item of the new one takes the place of its namesake."""
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
