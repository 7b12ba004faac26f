"""`callsheet version`: what to write into a report."""

from __future__ import annotations

import platform
from importlib.metadata import version

import click

from callsheet import contract
from callsheet.cli import options, output


@click.command()
@options.form("json", "yaml")
def command(form: str | None) -> None:
    """Print the version of Callsheet, of its file format and of Python."""
    data = {
        "callsheet": version("callsheet"),
        "apiVersion": contract.API_VERSION,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if form:
        output.answer(output.structured(data, form))
    else:
        output.answer("callsheet {callsheet} ({apiVersion}, Python {python}, {system})".format(**data))
