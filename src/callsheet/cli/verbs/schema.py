"""`callsheet schema`: what editors and other tools need to check an experiment file."""

from __future__ import annotations

import click

from callsheet.cli import options, output


@click.command()
@options.form("json", "yaml")
def command(form: str | None) -> None:
    """Print the JSON schema of an experiment file."""
    from callsheet.spec.schema import schema

    output.answer(output.structured(schema(), form or "json"))
