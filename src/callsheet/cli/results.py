"""Where the results of a run are: a folder or a URL, from what the user typed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.backends.base import Backend, Status

_CLOUDS = ("s3", "gs", "az")
_MARKERS = ("status.json", "checkpoints", "metrics")
"""A results folder has at least one of these."""


@dataclass(frozen=True)
class Results:
    """The results of one run."""

    name: str
    """For people: ``experiment/run``."""
    url: str
    """For `open_store`: a URL, or the path of a folder."""


def find(reference: str, backend: Backend) -> Results:
    """The results of a run's id, an experiment's name, a folder or a URL."""
    if "://" in reference:
        return Results("/".join(urlsplit(reference).path.strip("/").split("/")[-2:]) or reference, reference)
    folder = Path(reference)
    if folder.is_dir() and any((folder / marker).exists() for marker in _MARKERS):
        folder = folder.resolve()
        return Results(f"{folder.parent.name}/{folder.name}", str(folder))
    return of(backend.find(reference).status())


def of(status: Status) -> Results:
    """The results of a run."""
    return Results(f"{status.experiment}/{status.run}", _url(status))


def _url(status: Status) -> str:
    if not status.folder:
        raise UserError(
            f"the results of run {status.run} are not on this machine",
            fix=f"give their URL: the experiment's storage, then /{status.experiment}/{status.run}",
        )
    storage = str(stored_spec(status.folder).get("storage") or "")
    if urlsplit(storage).scheme in _CLOUDS:
        return f"{storage.rstrip('/')}/{status.experiment}/{status.run}"
    return status.folder


def stored_spec(folder: str) -> dict[str, Any]:
    """The `spec` of the experiment file that is stored with a run; empty if there is none."""
    import yaml

    try:
        with open(Path(folder) / "experiment.yaml", encoding="utf-8") as file:
            spec = next(iter(yaml.safe_load_all(file)))["spec"]
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError, StopIteration):
        return {}
    return spec if isinstance(spec, dict) else {}
