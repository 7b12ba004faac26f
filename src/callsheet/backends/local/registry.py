"""Where runs are: a folder of links, one per run, so that every terminal finds every run of its user."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from callsheet.errors import UserError

_FIRST = "bcdfghjkmnpqrstvwxz"
_REST = _FIRST + "23456789"
_LENGTH = 8


def state_folder() -> Path:
    """The folder of links: ``$XDG_STATE_HOME/callsheet/runs``."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "callsheet" / "runs"


def new_run_id() -> str:
    """Eight letters and digits that cannot be misread and spell no word."""
    return secrets.choice(_FIRST) + "".join(secrets.choice(_REST) for _ in range(_LENGTH - 1))


def register(run: str, folder: Path) -> None:
    """Let every terminal find a run."""
    links = state_folder()
    links.mkdir(parents=True, exist_ok=True)
    (links / run).symlink_to(folder)


def known_runs() -> dict[str, Path]:
    """Every registered run whose folder is still there: id -> folder, newest first."""
    links = state_folder()
    found: list[tuple[float, str, Path]] = []
    try:
        entries = list(os.scandir(links))
    except FileNotFoundError:
        return {}
    for entry in entries:
        folder = Path(os.readlink(entry.path))
        try:
            found.append((entry.stat(follow_symlinks=False).st_mtime, entry.name, folder))
            os.stat(folder)
        except FileNotFoundError:
            os.unlink(entry.path)
            found = [item for item in found if item[1] != entry.name]
    return {name: folder for _, name, folder in sorted(found, reverse=True)}


def find_folder(reference: str) -> Path:
    """The folder of the run that a person means."""
    if os.sep in reference and Path(reference).is_dir() and (Path(reference) / "status.json").exists():
        return Path(reference).resolve()
    runs = known_runs()
    experiment, slash, part = reference.rpartition("/")
    matching = [
        folder
        for name, folder in runs.items()
        if name.startswith(part) and (not slash or folder.parent.name == experiment)
    ]
    exact = [folder for name, folder in runs.items() if name == part]
    if exact and not slash:
        return exact[0]
    if len(matching) == 1:
        return matching[0]
    named = [folder for folder in runs.values() if folder.parent.name == reference]
    if named:
        return _the_one_meant(named)
    if matching:
        names = ", ".join(f"{folder.parent.name}/{folder.name}" for folder in matching)
        raise UserError(f"{reference!r} could be any of {names}", fix="write more of the id")
    raise UserError(f"there is no run {reference!r}", fix="see which there are: callsheet ps --all")


def _the_one_meant(folders: list[Path]) -> Path:
    """Of several runs of one experiment: the newest that runs, else the newest."""
    running = [folder for folder in folders if (folder / ".callsheet" / "control.sock").exists()]
    return (running or folders)[0]


def forget(folder: Path) -> None:
    """Remove a run's folder and its link; empty folders above it too."""
    shutil.rmtree(folder)
    (state_folder() / folder.name).unlink(missing_ok=True)
    try:
        folder.parent.rmdir()
    except OSError:
        return  # other runs of the experiment are still there
