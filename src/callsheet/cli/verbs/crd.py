"""`callsheet crd`: print the CustomResourceDefinition."""

from __future__ import annotations

import click

from callsheet.cli import options, output


@click.command()
@options.form("json", "yaml")
def command(form: str | None) -> None:
    """Print the CustomResourceDefinition of the kind Experiment.

    \b
    callsheet crd | kubectl apply -f -
    kubectl explain exp.spec.roles
    """
    from callsheet.spec.crd import crd
    from callsheet.spec.dump import dump

    output.answer(output.structured(crd(), form) if form else dump(crd()))
