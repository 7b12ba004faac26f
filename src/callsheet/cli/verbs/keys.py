"""`callsheet keys`: the one thing that rendered manifests must not contain."""

from __future__ import annotations

import click

from callsheet.cli import options, output


@click.command()
@options.on_cluster
@click.argument("experiment")
def command(experiment: str) -> None:
    """Make the Secret with the key of an experiment whose manifests kubectl applies; `callsheet run` does it by itself.

    \b
    callsheet keys cartpole
    callsheet render --on kubernetes -f cartpole.yaml | kubectl apply -f -

    A key that is there already stays as it is.
    """
    from callsheet.backends.kubernetes.launch import make_key
    from callsheet.backends.kubernetes.names import keys

    made = make_key(options.cluster().api, experiment)
    output.say(
        f"The Secret {keys(experiment)} {'is made' if made else 'is there already and stays as it is'}."
    )
