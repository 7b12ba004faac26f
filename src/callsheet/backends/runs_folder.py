"""The folder `./runs`, where results go without a storage. Only its owner can enter it.

Logs, checkpoints and experiment files may hold what other users should not see, and whoever can write there can
replace what a run is about to start.
"""

from __future__ import annotations

import os
from pathlib import Path

from callsheet.errors import UserError

NAME = "runs"


def runs_folder() -> Path:
    """Its path; it may not exist yet."""
    return Path.cwd() / NAME


def make_runs_folder(experiment: Path) -> None:
    """Create it, above an experiment's folder, for yourself alone. An existing one keeps its mode, but it must not
    belong to somebody else."""
    place = experiment.parent
    place.mkdir(mode=0o700, exist_ok=True)
    trusted = {0, os.geteuid(), place.parent.stat().st_uid}
    for folder in (place, experiment):
        for stat in (os.lstat, os.stat):
            try:
                owner = stat(folder).st_uid
            except FileNotFoundError:
                continue
            if owner not in trusted:
                raise UserError(
                    f"{folder} belongs to another user (uid {owner}), who could replace what you run",
                    fix="run it from a folder of your own, or name one with `storage: file:///...`",
                )
