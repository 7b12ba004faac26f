"""The folder `runs/` below the current one: where results go when no storage is named. Its maker alone can enter it.

Logs, checkpoints and the experiment's file may hold what other users of the machine should not see, and whoever can
write there can replace what a run is about to start.
"""

from __future__ import annotations

import os
from pathlib import Path

from callsheet.errors import UserError

NAME = "runs"


def runs_folder() -> Path:
    """Where it is, made or not."""
    return Path.cwd() / NAME


def make_runs_folder(experiment: Path) -> None:
    """Make it, above an experiment's folder, for yourself alone. One that is there keeps its mode, unless somebody
    else put it in your way."""
    place = experiment.parent
    place.mkdir(mode=0o700, exist_ok=True)
    trusted = {0, os.geteuid(), place.parent.stat().st_uid}
    for folder in (place, experiment):
        for look in (os.lstat, os.stat):
            try:
                owner = look(folder).st_uid
            except FileNotFoundError:
                continue
            if owner not in trusted:
                raise UserError(
                    f"{folder} belongs to another user (uid {owner}), who could replace what you run",
                    fix="run it from a folder of your own, or name one with `storage: file:///...`",
                )
