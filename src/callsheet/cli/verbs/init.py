"""`callsheet init`: write a small working experiment to start from."""

from __future__ import annotations

import shlex
from importlib import resources
from pathlib import Path

import click

from callsheet.cli import output
from callsheet.errors import UserError

_FILES = ("experiment.yaml", "learner.py", "actor.py")


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
def command(folder: Path) -> None:
    """Write a small working experiment to start from.

    FOLDER gets an experiment file, a learner and an actor. Existing files are not overwritten.
    """
    present = [name for name in _FILES if (folder / name).exists()]
    if present:
        raise UserError(
            f"{folder} already has {', '.join(present)}",
            fix="choose another folder: `callsheet init my-experiment`",
        )
    starter = resources.files("callsheet.cli") / "starter"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in _FILES:
            (folder / name).write_text((starter / name).read_text())
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}", fix="choose another folder") from None
    output.answer("\n".join(str(folder / name) for name in _FILES))
    file = shlex.quote(str(folder / _FILES[0]))
    output.next_commands(
        [
            (f"callsheet plan -f {file}", "show every replica and its command"),
            (f"callsheet run -f {file}", "run it here"),
        ]
    )
