"""`callsheet version`: print versions, as needed for a bug report."""

from __future__ import annotations

import platform
from importlib.metadata import version

import click

from callsheet import contract
from callsheet.cli import options, output


@click.command()
@options.form("json", "yaml")
def command(form: str | None) -> None:
    """Print the version.

    The output includes the versions of the file format and Python.
    """
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
