"""Checks a cloud storage before a run starts."""

from __future__ import annotations

from pathlib import Path

from callsheet.backends.local.supervisor.files import Layout
from callsheet.backends.local.supervisor.results import is_remote
from callsheet.errors import InvalidExperiment, Problem, UserError

PATIENCE = 10.0
"""Seconds to wait for a server that does not answer."""


def check(url: str) -> None:
    """Check what can be checked without writing: the address, the credentials, the server, the bucket."""
    if not is_remote(url):
        return
    from callsheet.store import Denied, WrongCredentials, open_store

    try:
        open_store(url, patience=PATIENCE).list()
    except WrongCredentials as error:
        raise _problem(error) from None
    except Denied:
        return  # permission to write without permission to list is common
    except UserError as error:
        raise _problem(error) from None


def begin(url: str, layout: Layout) -> None:
    """Write the experiment's file there, which fails now rather than at the end."""
    if not is_remote(url):
        return
    from callsheet.store import open_store

    try:
        open_store(url, patience=PATIENCE).put("experiment.yaml", Path(layout.experiment))
    except UserError as error:
        raise _problem(error) from None


def _problem(error: UserError) -> InvalidExperiment:
    return InvalidExperiment([Problem("spec.storage", error.message, error.fix)])
