"""Lets a package offer names that are loaded when they are first used (PEP 562): who needs few of them waits for few."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The package's `__getattr__` and `__dir__`; `homes` tells the module of each name, as seen from the package."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{package}.{homes[name]}"), name)

    def listed() -> list[str]:
        from importlib import import_module

        return sorted({*vars(import_module(package)), *homes})

    return find, listed
