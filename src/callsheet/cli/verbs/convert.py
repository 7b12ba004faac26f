"""`callsheet convert`: a file of an older system becomes an experiment file."""

from __future__ import annotations

import sys

import click

from callsheet.cli import output
from callsheet.errors import UserError


@click.command()
@click.argument("file", type=click.Path(allow_dash=True))
@click.option(
    "--workdir",
    metavar="FOLDER",
    help="The programs lie in this folder, relative to the experiment file, and not in the image: carry it along.",
)
def command(file: str, workdir: str | None) -> None:
    """Print the experiment file that a DIJob (DI-orchestrator's v1alpha1 or v2alpha1) becomes.

    FILE may be - for standard input. Whatever has no counterpart is told on standard error, with its place.

    \b
      callsheet convert dijob.yaml > experiment.yaml
    """
    from callsheet.compat.dijob import convert
    from callsheet.spec.dump import to_yaml

    made = convert(_read(file), "<stdin>" if file == "-" else file, workdir=workdir)
    output.answer("---\n".join(to_yaml(item.experiment) for item in made))
    for item in made:
        for warning in item.warnings:
            text = str(warning).removeprefix(warning.place)
            output.say(f"{output.paint('warning:', 'yellow', sys.stderr)} {warning.place}{text}")


def _read(file: str) -> bytes:
    from callsheet.spec.yaml_reader import MAX_BYTES

    try:
        with click.open_file(file, "rb") as stream:
            return bytes(stream.read(MAX_BYTES + 1))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}", fix="check the path") from None
