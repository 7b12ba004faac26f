"""Where the results of a run are: from a word on the command line to a folder or an address in a cloud."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from callsheet.cli import options
from callsheet.errors import UserError

if TYPE_CHECKING:
    from callsheet.backends.base import Status

_CLOUDS = ("s3", "gs", "az")
_SIGNS = ("status.json", "checkpoints", "metrics")
"""What a folder of results has at least one of."""


@dataclass(frozen=True)
class Results:
    """The results of one run."""

    name: str
    """In a legend."""
    url: str
    """For `open_store`: an address in a cloud, or the path of a folder."""


def find(reference: str, on: str) -> Results:
    """The results that are meant by a run's id, an experiment's name, a folder or a URL."""
    if "://" in reference:
        return Results("/".join(urlsplit(reference).path.strip("/").split("/")[-2:]) or reference, reference)
    folder = Path(reference)
    if folder.is_dir() and any((folder / sign).exists() for sign in _SIGNS):
        folder = folder.resolve()
        return Results(f"{folder.parent.name}/{folder.name}", str(folder))
    return of(options.backend(on).find(reference).status())


def of(status: Status) -> Results:
    """Those of a run that is known."""
    return Results(f"{status.experiment}/{status.run}", _url(status))


def _url(status: Status) -> str:
    if not status.folder:
        raise UserError(
            f"the results of run {status.run} are not on this machine",
            fix=f"give their address: the experiment's storage, then /{status.experiment}/{status.run}",
        )
    storage = _storage(Path(status.folder))
    if urlsplit(storage).scheme in _CLOUDS:
        return f"{storage.rstrip('/')}/{status.experiment}/{status.run}"
    return status.folder


def _storage(folder: Path) -> str:
    """What the experiment's file says; empty when it says nothing."""
    import yaml

    try:
        data = next(iter(yaml.safe_load_all((folder / "experiment.yaml").read_text(encoding="utf-8"))))
        return str(data["spec"].get("storage") or "")
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError, AttributeError, StopIteration):
        return ""
