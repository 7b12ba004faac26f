"""`callsheet convert`: convert a file of an older system into an experiment file."""

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
    help="Folder with the code, relative to the experiment file, if the image does not contain it.",
)
def command(file: str, workdir: str | None) -> None:
    """Convert a DIJob into an experiment file.

    FILE is a DIJob of DI-orchestrator, v1alpha1 or v2alpha1, or - for standard input. Fields without a counterpart
    are reported on standard error.

    \b
    callsheet convert dijob.yaml > experiment.yaml
    """
    from callsheet.compat.dijob import convert
    from callsheet.spec.dump import to_yaml

    converted = convert(_read(file), "<stdin>" if file == "-" else file, workdir=workdir)
    output.answer("---\n".join(to_yaml(item.experiment) for item in converted))
    for item in converted:
        for warning in item.warnings:
            text = str(warning).removeprefix(warning.place)
            output.say(f"{output.paint('warning:', 'yellow', sys.stderr)} {warning.place}{text}")


def _read(file: str) -> bytes:
    from callsheet.spec.yaml_reader import MAX_BYTES

    try:
        with click.open_file(file, "rb") as stream:
            return bytes(stream.read(MAX_BYTES + 1))
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}", fix="check the path") from None
