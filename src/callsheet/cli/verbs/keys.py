"""`callsheet keys`: create the Secret that rendered manifests refer to but must not contain."""

from __future__ import annotations

import click

from callsheet.cli import options, output


@click.command()
@options.on_cluster
@click.argument("experiment")
def command(experiment: str) -> None:
    """Create the key of an experiment applied with kubectl.

    The key is stored in a Secret. `callsheet run` creates it for you. Each run has its own key: once a run has ended,
    this creates a new one. The key of a run that is still active is kept.

    \b
    callsheet keys cartpole
    callsheet render --on kubernetes -f cartpole.yaml | kubectl apply -f -
    """
    secret, created = options.cluster().make_key(experiment)
    output.say(f"{'Created' if created else 'Kept the existing'} Secret {secret}.")
