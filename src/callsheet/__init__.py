"""Callsheet: one file describes a distributed experiment; it runs as supervised processes or on Kubernetes.

Names are loaded when first used (PEP 562), so that ``import callsheet`` costs next to nothing in a program that
only wants to know where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callsheet.backends.base import Run, Status
    from callsheet.errors import CallsheetError, InvalidExperiment, UserError
    from callsheet.sdk import Container, Experiment, Role

    __version__: str

__all__ = [
    "CallsheetError",
    "Container",
    "Experiment",
    "InvalidExperiment",
    "Role",
    "Run",
    "Status",
    "UserError",
    "__version__",
]

_HOMES = {
    "CallsheetError": "callsheet.errors",
    "Container": "callsheet.sdk",
    "Experiment": "callsheet.sdk",
    "InvalidExperiment": "callsheet.errors",
    "Role": "callsheet.sdk",
    "Run": "callsheet.backends.base",
    "Status": "callsheet.backends.base",
    "UserError": "callsheet.errors",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("callsheet")
    if name not in _HOMES:
        raise AttributeError(f"module 'callsheet' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
