"""The user's defaults, such as their usual cluster: ``~/.config/callsheet/config.toml``."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

from callsheet.errors import UserError


@dataclass(frozen=True, slots=True)
class UserConfig:
    """Defaults for what neither the command line nor the environment sets."""

    on: str = ""
    """The backend."""
    context: str = ""
    """The context of the kubeconfig."""
    namespace: str = ""
    """The namespace in that context."""
    registry: str = ""
    """The registry of our images, perhaps with a path."""


def path() -> Path:
    """Where the file is."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "callsheet" / "config.toml"


def load() -> UserConfig:
    """The configuration; empty without a file."""
    try:
        text = path().read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return UserConfig()
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"cannot read {path()}: {error}", fix='write lines such as on = "kubernetes"'
        ) from None
    known = [field.name for field in fields(UserConfig)]
    for key, value in data.items():
        if key not in known or not isinstance(value, str):
            raise UserError(
                f"{path()} has {key} = {value!r}",
                fix=f"use only these keys, with strings: {', '.join(known)}",
            )
    return UserConfig(**data)
