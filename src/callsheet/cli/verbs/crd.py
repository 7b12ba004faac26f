"""`callsheet crd`: what a cluster needs to know the kind Experiment."""

from __future__ import annotations

import click

from callsheet.cli import options, output


@click.command()
@options.form("json", "yaml")
def command(form: str | None) -> None:
    """Print the CustomResourceDefinition of an experiment, for kubectl.

    \b
      callsheet crd | kubectl apply -f -
      kubectl explain exp.spec.roles
    """
    from callsheet.spec.crd import crd
    from callsheet.spec.dump import dump

    output.answer(output.structured(crd(), form) if form else dump(crd()))
