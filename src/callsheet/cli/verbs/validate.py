"""`callsheet validate`: check files and report every mistake."""

from __future__ import annotations

from dataclasses import asdict

import click

from callsheet import contract
from callsheet.cli import formatting, launch, options, output
from callsheet.errors import InvalidExperiment


@click.command()
@options.files
@options.on
@options.form("json", "yaml", "name")
def command(files: tuple[str, ...], sets: tuple[str, ...], on: str, form: str | None) -> int:
    """Check experiment files and report every mistake.

    Each mistake comes with its location and a fix. The exit code is 2 if there are any. `-o json` prints them as
    data.
    """
    try:
        loaded = options.load(files, sets)
    except InvalidExperiment as error:
        if form not in ("json", "yaml"):
            raise
        problems = [asdict(problem) for problem in error.problems]
        output.answer(output.structured({"valid": False, "experiments": [], "problems": problems}, form))
        return contract.EXIT_MISTAKE
    names = [item.experiment.name for item in loaded]
    if form == "name":
        output.answer("\n".join(names))
    elif form:
        output.answer(output.structured({"valid": True, "experiments": names, "problems": []}, form))
    else:
        for item in loaded:
            roles = item.experiment.spec.roles
            replicas = sum(role.replicas for role in roles)
            output.answer(
                f"{item.file}: experiment {item.experiment.name} is valid"
                f" ({formatting.count(len(roles), 'role')}, {formatting.count(replicas, 'replica')})"
            )
            launch.note_unused_fields(options.backend(on), item.experiment)
    return contract.EXIT_OK
