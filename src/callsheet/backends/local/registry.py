"""The registry of local runs: a folder with one link per run, so that you can find a run from any terminal."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from callsheet.backends.run_ids import KnownRun, choose_run
from callsheet.errors import UserError


def state_folder() -> Path:
    """The folder of links: ``$XDG_STATE_HOME/callsheet/runs``."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(base) / "callsheet" / "runs"


def register(run: str, folder: Path) -> None:
    """Add a run."""
    links = state_folder()
    links.mkdir(parents=True, exist_ok=True)
    (links / run).symlink_to(folder)


def known_runs() -> dict[str, Path]:
    """Every registered run whose folder is still there: id -> folder, newest first."""
    links = state_folder()
    runs: list[tuple[float, str, Path]] = []
    try:
        entries = list(os.scandir(links))
    except FileNotFoundError:
        return {}
    for entry in entries:
        try:
            folder = Path(os.readlink(entry.path))
            made = entry.stat(follow_symlinks=False).st_mtime
        except FileNotFoundError:
            continue  # deleted at this moment
        if folder.is_dir():
            runs.append((made, entry.name, folder))
        else:
            Path(entry.path).unlink(missing_ok=True)
    return {name: folder for _, name, folder in sorted(runs, reverse=True)}


def find_folder(reference: str) -> Path:
    """The folder of the run that a person means."""
    if os.sep in reference and Path(reference).is_dir() and (Path(reference) / "status.json").exists():
        return Path(reference).resolve()
    folders = known_runs()
    known = [
        KnownRun(folder.parent.name, run, (folder / ".callsheet" / "control.sock").exists())
        for run, folder in folders.items()
    ]
    missing = UserError(f"there is no run {reference!r}", fix="list them with `callsheet ps -a`")
    return folders[choose_run(reference, known, missing=missing).run]


def unregister(run: str) -> None:
    """Undo `register`."""
    (state_folder() / run).unlink(missing_ok=True)


def delete(folder: Path) -> None:
    """Remove a run's folder and its link; empty folders above it too."""
    shutil.rmtree(folder)
    unregister(folder.name)
    try:
        folder.parent.rmdir()
    except OSError:
        return  # other runs of the experiment are still there
