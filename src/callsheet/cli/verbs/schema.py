"""`callsheet schema`: print the JSON schema, for editors and other tools."""

from __future__ import annotations

import click

from callsheet.cli import options, output


@click.command()
@options.form("json", "yaml")
def command(form: str | None) -> None:
    """Print the JSON schema of experiment files."""
    from callsheet.spec.schema import schema

    output.answer(output.structured(schema(), form or "json"))
