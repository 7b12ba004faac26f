"""A storage in a cloud, seen from where a run is started: what is wrong with it is said before anything starts."""

from __future__ import annotations

from pathlib import Path

from callsheet.backends.local.supervisor.files import Layout
from callsheet.backends.local.supervisor.results import is_remote
from callsheet.errors import InvalidExperiment, Problem, UserError

PATIENCE = 10.0
"""Seconds that a server which is not there is waited for, before a run starts."""


def look(url: str) -> None:
    """Find out what can be found out without writing: the address, the credentials, the server, the bucket."""
    if not is_remote(url):
        return
    from callsheet.store import Denied, WrongCredentials, open_store

    try:
        open_store(url, patience=PATIENCE).list()
    except WrongCredentials as error:
        raise _problem(error) from None
    except Denied:
        return  # a right to write without one to list is usual
    except UserError as error:
        raise _problem(error) from None


def begin(url: str, layout: Layout) -> None:
    """Write the experiment's file there: whoever cannot do that learns it now."""
    if not is_remote(url):
        return
    from callsheet.store import open_store

    try:
        open_store(url, patience=PATIENCE).put("experiment.yaml", Path(layout.experiment))
    except UserError as error:
        raise _problem(error) from None


def _problem(error: UserError) -> InvalidExperiment:
    return InvalidExperiment([Problem("spec.storage", error.message, error.fix)])
